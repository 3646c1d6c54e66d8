"""Asks extenders about pods without anything being reserved, as ``dryRun`` in their configuration says.

See docs/extenders.md#dry-runs. A dry run goes to the same server as the calls that count, and behind them: it begins in
places of the server's limit that no other call needs, is not made unless the extender's breaker is closed, and teaches
neither of them anything. It has breakers of its own.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from app.extender.chain import ExtenderChain, FilterResult
from app.extender.client import PodsOn
from app.extender.config import Verb
from app.extender.errors import CallOutcome, ExtenderError
from app.model.pod import Pod
from app.state.columns.arrays import Int64
from app.wire.extender_v1 import ExtenderArgs, Victims

#: The verbs that decide about a pod, each with the one that is asked in a dry run.
_DECIDING: Final = (
    (Verb.FILTER, Verb.FILTER),
    (Verb.PRIORITIZE, Verb.PRIORITIZE),
    (Verb.GROUP, Verb.FILTER),
)


class DryRunAnswer(msgspec.Struct, frozen=True):
    """What the extenders say about a pod and some nodes."""

    #: The nodes that are left, and why the others are not; ``error`` if an extender that is not ignorable failed.
    filtered: FilterResult
    #: int64[len(filtered.survivors)]: what is added to the nodes' scores; None if nothing is.
    scores: Int64 | None = None


class DryRuns:
    """The extenders of a chain, for questions."""

    def __init__(self, chain: ExtenderChain) -> None:
        self._chain: Final = chain
        self._dry: Final = ExtenderChain(chain.dry_runs)

    def not_asked(self, pod: Pod) -> tuple[str, ...]:
        """The names of the extenders that decide about the pod and whose filter, or prioritize, has no dry run."""
        dry = {
            (verb, extender.config.url_prefix)
            for verb in (Verb.FILTER, Verb.PRIORITIZE)
            for extender in self._dry.extenders
            if extender.supports(verb)
        }
        return tuple(
            extender.name
            for extender in self._chain.extenders
            if any(
                extender.supports(asked) and (dry_verb, extender.config.url_prefix) not in dry
                for asked, dry_verb in _DECIDING
            )
            and extender.is_interested(pod)
        )

    async def ask(self, args: ExtenderArgs, until: float) -> DryRunAnswer:
        """The answers of filter, and of prioritize about what it has left, before ``until`` (of the loop's clock).

        Does not raise for what an extender does, or does not do in time.
        """
        result = await self.filter(args, until)
        if len(result.survivors) < 2:
            return DryRunAnswer(result)
        try:
            async with asyncio.timeout_at(until):
                return DryRunAnswer(result, await self._dry.prioritize(result.args))
        except TimeoutError:
            result.fail(self._late(args.pod, Verb.PRIORITIZE))
            return DryRunAnswer(result)

    async def filter(self, args: ExtenderArgs, until: float) -> FilterResult:
        """The answers of filter alone. Raises as ``ask``: not at all."""
        try:
            async with asyncio.timeout_at(until):
                return await self._dry.filter(args)
        except TimeoutError:
            result = FilterResult(args)
            result.fail(self._late(args.pod, Verb.FILTER))
            return result

    async def preempt(
        self, pod: Pod, victims: Mapping[str, Victims], pods_on: PodsOn, until: float
    ) -> dict[str, Victims]:
        """The candidates of a preemption that all extenders accept (see ExtenderChain.preempt).

        Raises ExtenderError, also if there is no answer before ``until``, and SchedulingError.
        """
        try:
            async with asyncio.timeout_at(until):
                return await self._dry.preempt(pod, victims, pods_on)
        except TimeoutError:
            raise self._late(pod, Verb.PREEMPT) from None

    def _late(self, pod: Pod, verb: Verb) -> ExtenderError:
        names = [extender.name for extender in self._dry.concerned(pod, verb)]
        text = f"no answer in the time of the question from {', '.join(names)}"
        return ExtenderError(
            text, extender=names[0] if names else "", verb=verb, outcome=CallOutcome.TIMEOUT
        )
