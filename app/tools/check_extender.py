"""Calls an extender as the scheduler would and collects problems of its answers (``check-extender``).

Both node forms are tried: the configured one, and the other, which distinguishes a wrong ``nodeCacheCapable`` from a
broken extender. Bind is called only on request, because it may change something.
"""

import asyncio
import dataclasses
import os
from collections.abc import Mapping
from typing import Final

from app.extender.client import HTTPExtender, token_file, transport_for
from app.extender.config import ExtenderConfig, Verb
from app.extender.errors import CallOutcome, TransportError
from app.extender.tls import TLSSource
from app.tools.extender_checks import (
    CheckFinding,
    Exchange,
    Severity,
    compare_forms,
    compare_repeats,
    compare_side_by_side,
    compare_sizes,
    examine,
    has_errors,
    keeps_one,
    weigh,
)
from app.tools.extender_samples import SampleObjects
from app.wire import extender_v1 as wire
from app.wire.extender_v1 import Body

#: The node name in a bind request.
_NO_NODE: Final = "check-extender-no-such-node"


@dataclasses.dataclass(frozen=True, slots=True)
class CheckOptions:
    """What to try."""

    #: Nodes in a large request; 0 for none.
    large: int = 1000
    #: Calls of filter or prioritize at the same time; 0 for none.
    side_by_side: int = 16
    #: Whether bind may be called, with a pod that does not exist.
    bind: bool = False


@dataclasses.dataclass(slots=True)
class ExtenderReport:
    """The result of checking one extender."""

    config: ExtenderConfig
    exchanges: list[Exchange] = dataclasses.field(default_factory=list)
    findings: list[CheckFinding] = dataclasses.field(default_factory=list)

    def count(self, severity: Severity) -> int:
        """The number of findings of this severity."""
        return sum(finding.severity is severity for finding in self.findings)


async def check(
    config: ExtenderConfig,
    material: SampleObjects,
    options: CheckOptions = CheckOptions(),
    *,
    environ: Mapping[str, str] = os.environ,
) -> ExtenderReport:
    """Checks one extender. Raises ExtenderConfigError if its configuration does not allow calls."""
    caller = _Caller(config, environ)
    try:
        return await _Checker(caller, material, options).run()
    finally:
        await caller.close()


class _Caller:
    """Sends requests as HTTPExtender does, and keeps the answers as they are."""

    def __init__(self, config: ExtenderConfig, environ: Mapping[str, str]) -> None:
        self.config: Final = config
        #: The warnings of the scheduler at its start; errors are raised.
        self.warnings: Final = HTTPExtender(config, environ=environ).warnings
        self._transport: Final = transport_for(config, TLSSource(config), environ)
        self._token: Final = token_file(config)

    async def close(self) -> None:
        await self._transport.close()

    async def call(self, seen: Exchange, body: Body) -> Exchange:
        """Makes the call that ``seen`` describes; returns it with the result."""
        now = asyncio.get_running_loop().time
        started = now()
        headers = {}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.token(started)}"
        try:
            response = await self._transport.post(
                self.config.url(seen.verb),
                body,
                headers=headers,
                timeout_seconds=self.config.timeout,
            )
        except TransportError as error:
            return dataclasses.replace(
                seen,
                seconds=now() - started,
                failure=error.text,
                hung_up=error.outcome in {CallOutcome.BROKEN, CallOutcome.STALE},
            )
        return dataclasses.replace(
            seen,
            seconds=now() - started,
            status=response.status,
            headers=response.headers,
            body=response.body,
            redirected=response.redirected,
        )


class _Checker:
    """Makes all calls in order."""

    def __init__(self, caller: _Caller, material: SampleObjects, options: CheckOptions) -> None:
        self._caller: Final = caller
        self._config: Final = caller.config
        self._material: Final = material
        self._options: Final = options
        self._report: Final = ExtenderReport(caller.config)
        #: Findings about the verbs that succeed in the configured form.
        self._succeeded: Final[dict[Verb, list[CheckFinding]]] = {}
        #: Verbs that may keep something for a pod.
        self._reserving: Final[set[Verb]] = set()

    async def run(self) -> ExtenderReport:
        report = self._report
        report.findings += [
            CheckFinding(Severity.WARNING, "", text) for text in self._caller.warnings
        ]
        if not any(self._config.path(verb) for verb in Verb):
            text = (
                "no verb is configured, so it is never called: set filterVerb, prioritizeVerb, ..."
            )
            report.findings.append(CheckFinding(Severity.ERROR, "", text))
        for verb in (Verb.FILTER, Verb.PRIORITIZE):
            if self._config.path(verb) and not self._unreachable:
                await self._about_nodes(verb)
        if self._config.path(Verb.GROUP) and not self._unreachable:
            await self._group()
        if self._config.path(Verb.PREEMPT) and not self._unreachable:
            await self._preempt()
        if self._config.path(Verb.BIND) and not self._unreachable:
            await self._bind()
        if self._config.path(Verb.RELEASE) and not self._unreachable:
            await self._release()
        await self._side_by_side()
        # Last, because the scheduler never sends the other form, and it makes some extenders exit.
        for verb, findings in self._succeeded.items():
            await self._other_form(verb, findings)
        return report

    @property
    def _unreachable(self) -> bool:
        """Whether the first call got no answer; then further calls are useless."""
        exchanges = self._report.exchanges
        return bool(exchanges) and bool(exchanges[0].failure) and not exchanges[0].hung_up

    async def _about_nodes(self, verb: Verb) -> None:
        whole = not self._config.node_cache_capable
        first = await self._ask(verb, self._material, whole=whole)
        findings = self._examine(first)
        if self._unreachable:
            return
        if not has_errors(findings):
            self._succeeded[verb] = findings
        elif has_errors(await self._other_form(verb, findings)):
            return
        if verb is Verb.FILTER:
            again = await self._ask(verb, self._material, whole=whole)
            repeats = compare_repeats(first, again)
            self._report.findings += repeats
            if repeats or keeps_one(first):
                self._reserving.add(verb)
        else:
            self._report.findings += weigh(first, self._config.weight)
        if self._options.large:
            await self._large(verb, first, findings)

    async def _other_form(self, verb: Verb, findings: list[CheckFinding]) -> list[CheckFinding]:
        """Tries the form that is not configured; ``findings`` are about the configured one."""
        capable = self._config.node_cache_capable
        other = await self._ask(verb, self._material, whole=capable)
        said = examine(other, timeout=self._config.timeout)
        comparison = compare_forms(findings, said, node_cache_capable=capable, verb=verb)
        self._report.findings += comparison
        return comparison

    async def _side_by_side(self) -> None:
        """Makes some calls at the same time, of a verb that succeeds and does not reserve: never bind."""
        count, timeout = self._options.side_by_side, self._config.timeout
        verb = next((v for v in (Verb.PRIORITIZE, Verb.FILTER) if v in self._succeeded), None)
        if not count or verb is None:
            return
        if verb in self._reserving:
            text = "not called side by side: it keeps one of several nodes, or remembers pods, so it may reserve"
            self._report.findings.append(CheckFinding(Severity.NOTE, str(verb), text))
            return
        whole = not self._config.node_cache_capable
        alone = await self._ask(verb, self._material, whole=whole)
        calls = [self._ask(verb, self._material, whole=whole) for _ in range(count)]
        together = await asyncio.gather(*calls)
        self._report.findings += compare_side_by_side(alone, together, timeout)

    async def _large(self, verb: Verb, small: Exchange, known: list[CheckFinding]) -> None:
        """Sends a request of a large cluster; findings that the small one had are not repeated."""
        resources = self._config.managed_resources
        many = self._material.of_nodes(self._options.large, resources[0].name if resources else "")
        exchange = await self._ask(verb, many, whole=small.whole)
        kinds = {_kind(finding) for finding in known}
        self._report.exchanges.append(exchange)
        self._report.findings += [
            finding
            for finding in examine(exchange, timeout=self._config.timeout)
            if _kind(finding) not in kinds
        ]
        self._report.findings += compare_sizes(small, exchange)

    async def _ask(self, verb: Verb, material: SampleObjects, *, whole: bool) -> Exchange:
        body = material.args().body(whole=whole)
        return await self._caller.call(Exchange(verb, whole, list(material.nodes), body.size), body)

    async def _group(self) -> None:
        """Asks about two pods of a group at once."""
        args = self._material.group()
        body = args.body()
        seen = Exchange(Verb.GROUP, False, list(self._material.nodes), body.size, group=args)
        self._examine(await self._caller.call(seen, body))

    async def _preempt(self) -> None:
        whole, victims = not self._config.node_cache_capable, self._material.victims()
        uids = {name: [pod.uid for pod in entry.pods] for name, entry in victims.items()}
        body = wire.preempt_request(self._material.pod, victims, whole=whole)
        seen = Exchange(Verb.PREEMPT, whole, list(victims), body.size, victims=uids)
        self._examine(await self._caller.call(seen, body))

    async def _bind(self) -> None:
        if not self._options.bind:
            text = "not called; --bind calls it with a pod that does not exist"
            self._report.findings.append(CheckFinding(Severity.NOTE, "bind", text))
            return
        body = wire.bind_request(self._material.pod, _NO_NODE)
        self._examine(await self._caller.call(Exchange(Verb.BIND, False, (), body.size), body))

    async def _release(self) -> None:
        """Gives up what the extender may have reserved for the sample pods."""
        node = next(iter(self._material.nodes), _NO_NODE)
        pods = self._material.mates() if self._config.path(Verb.GROUP) else [self._material.pod]
        body = wire.release_request([pod.on(node) for pod in pods], "checked by check-extender")
        self._examine(await self._caller.call(Exchange(Verb.RELEASE, False, (), body.size), body))

    def _examine(self, exchange: Exchange) -> list[CheckFinding]:
        findings = examine(exchange, timeout=self._config.timeout)
        self._report.exchanges.append(exchange)
        self._report.findings += findings
        return findings


def _kind(finding: CheckFinding) -> str:
    """The finding without names and numbers, which come after a colon."""
    return finding.text.partition(":")[0]
