"""Runs a scheduler whose extenders answer nonsense, and checks what must hold."""

import asyncio
import contextlib
import time
from collections import Counter
from random import Random
from typing import Any

from app.extender.answers import excerpt, retry_after
from app.extender.client import HTTPExtender
from app.extender.config import BreakerSettings
from app.extender.errors import TransportError
from app.extender.events import Sink
from app.extender.transport import ExtenderResponse, HTTPTransport
from app.wire.extender_v1 import Body
from tests.fuzz.answers import answer, http
from tests.fuzz.driver import Figures, History, Slow, in_new_loop
from tests.fuzz.kinds import NODES
from tests.fuzz.shapes import LARGEST_OBJECT
from tests.fuzz.world import BUDGET, Violation, World, running
from tests.shell.extender.fakes import extender

_HEADERS: tuple[dict[str, str], ...] = (
    {},
    {},
    {"Retry-After": "3"},
    {"Retry-After": "9" * 5000},
    {"Retry-After": "\u0663"},
    {"Retry-After": "soon", "Date": "x"},
)
_STATUSES = (200, 200, 200, 200, 200, 200, 500, 503, 429, 404, 204, 301)
VERBS: Counter[str] = Counter()
_HARMS = (0.0, 0.02, 0.1, 0.5)


class Extenders:
    """Two extenders: one that is asked by names and must answer, one that gets whole nodes and may be ignored."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.good = False
        #: The only verb that is answered badly; all are without one.
        self.bad = ""
        self.world: World | None = None
        self.answers: list[tuple[str, bytes]] = []
        self.number = 0

    def __call__(self, sink: Sink) -> list[HTTPExtender]:
        common: dict[str, Any] = {"sink": sink, "breaker": BreakerSettings(failures=0)}
        binds = {"bind_verb": "bind" if self.random.random() < 0.3 else ""}
        ignorable = {
            "ignorable": True,
            "node_cache_capable": False,
            "bind_verb": "",
            "url_prefix": "http://other.test",
        }
        return [
            extender(self._reply, **common, **binds),
            extender(self._reply, **common, **ignorable),
        ]

    def _reply(self, verb: str, sent: Any) -> Any:
        started = time.thread_time()
        try:
            return self._answer(verb, sent)
        finally:
            if self.world is not None:
                self.world.server.spent += time.thread_time() - started

    def _answer(self, verb: str, sent: Any) -> Any:
        if self.good or self.bad not in {"", verb}:
            return self._good(verb, sent)
        random, self.number = self.random, self.number + 1
        body = answer(verb, random, random.choice(_HARMS))
        status = random.choice(_STATUSES)
        self.answers.append((verb, body))
        VERBS[verb] += 1
        if verb == "bind" and status == 200 and body in {b"{}", b"null", b'{"Error":""}'}:
            self._bind(sent)
        return ExtenderResponse(
            status, random.choice(_HEADERS), body if status == 200 else body[:4096]
        )

    def _good(self, verb: str, sent: Any) -> Any:
        match verb:
            case "filter" if sent["NodeNames"] is not None:
                return {"NodeNames": sent["NodeNames"]}
            case "filter":
                return {"Nodes": sent["Nodes"]}
            case "prioritize":
                return [{"Host": name, "Score": 1} for name in NODES]
            case "preempt":
                return {
                    "NodeNameToMetaVictims": {
                        name: _by_uid(victims) for name, victims in _victims(sent).items()
                    }
                }
        self._bind(sent)
        return {}

    def _bind(self, sent: Any) -> None:
        assert self.world is not None
        self.world.server.bind(f"{sent['PodNamespace']}/{sent['PodName']}", sent["Node"])


def _victims(sent: Any) -> dict[str, Any]:
    return sent["NodeNameToMetaVictims"] or sent["NodeNameToVictims"] or {}


def _by_uid(victims: Any) -> Any:
    return {"Pods": [{"UID": pod.get("UID") or pod["metadata"]["uid"]} for pod in victims["Pods"]]}


def run(seed: int, pods: int, figures: Figures, *, budget: float = BUDGET) -> None:
    """So many pods about whom the extenders answer as the seed says. Raises Violation."""
    extenders = Extenders(Random(seed))

    async def main() -> None:
        async with running(extenders=extenders) as world:
            extenders.world = world
            await _ask(world, extenders, pods, figures, budget)

    try:
        in_new_loop(main)
    finally:
        figures.events += extenders.number


async def _ask(
    world: World, extenders: Extenders, pods: int, figures: Figures, budget: float
) -> None:
    history = History(world, figures, budget=budget)
    for number in range(pods):
        extenders.answers.clear()
        extenders.bad = extenders.random.choice(
            ("", "filter", "prioritize", "preempt", "preempt", "bind")
        )
        if extenders.bad == "preempt":
            await world.fill_up()
        world.telemetry.outcomes.clear()
        key = await world.add_normal(
            "huge" if extenders.bad == "preempt" else ("plain", "exclusive")[number % 2]
        )
        for cost in (world.cost._replace(what="answers"), *world.telemetry.costs):
            figures.cost(cost, None)
            if cost.seconds > budget:
                sizes = [(verb, len(body), body[:200]) for verb, body in extenders.answers]
                raise Slow(
                    f"{cost.seconds * 1000:.0f} ms of CPU for an attempt with these answers: {sizes}"
                )
        ended = [outcome for outcome in world.telemetry.outcomes if outcome[0] == key]
        if not ended:
            raise Violation(f"the attempt of {key} has not ended; answers: {extenders.answers}")
        figures.results.update(f"with extenders: {result}" for _, result, _ in ended)
        history.read_log()
        if number % 10 == 9:
            await world.remove_normal()
    extenders.good = True
    await world.quiet(700)
    history.read_log()
    unbound = [
        key
        for key in world.server.objects["Pod"]
        if key not in world.server.bindings and "huge" not in key
    ]
    if unbound:
        raise Violation(f"not bound though the extenders are well: {unbound}")


# ---------------------------------------------------------------- bytes over real connections

#: Seconds for one call.
_PATIENCE = 0.2


async def call(random: Random, number: int) -> tuple[int, int]:
    """Makes so many calls to a server that answers anything; how many had an answer, and how many a TransportError."""
    counts = Counter[bool]()
    answering: list[bytes] = []

    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answering[-1])
            await writer.drain()
            if random.random() < 0.5:
                await asyncio.sleep(2 * _PATIENCE if random.random() < 0.02 else 0)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/filter"
    transport = HTTPTransport(max_answer_bytes=LARGEST_OBJECT)
    try:
        for _ in range(number):
            answering.append(http(answer("filter", random, random.choice(_HARMS)), random))
            try:
                response = await transport.post(
                    url, Body((b"{}",)), headers={}, timeout_seconds=_PATIENCE
                )
            except TransportError as error:
                str(error).encode()
                counts[False] += 1
            else:
                excerpt(response.body), retry_after(response.headers)
                counts[True] += 1
    except Exception as error:
        raise Violation(f"{error!r} for {answering[-1][:2000]!r}") from error
    finally:
        await transport.close()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*serving)
    return counts[True], counts[False]


def run_calls(seed: int, number: int, figures: Figures) -> None:
    """So many calls over real connections. Raises Violation."""
    answered, failed = asyncio.run(call(Random(seed), number))
    figures.events += number
    figures.results.update({"calls answered": answered, "calls failed": failed})
