"""Leader election on a lease that anybody may have written anything into."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import numpy as np

from app.kube.errors import Conflict, NotFound
from app.kube.leases import LeaseClient
from app.kube.transport import Response
from app.scheduler.election.elector import ElectionOutcome, LeaseElector
from app.scheduler.election.rules import ElectionSettings
from tests.fuzz.driver import Figures, in_new_loop
from tests.fuzz.kinds import LEASE, META
from tests.fuzz.shapes import draw, encode, junk
from tests.fuzz.world import Listener, Violation
from tests.shell.clock import LoopClock
from tests.shell.kube.fakes import Requests

_NAME = "kube-scheduler"
#: Virtual seconds within which a lease that is gone is acquired.
_SOON = 120


class LeaseServer(Requests):
    """A Transport for one lease, kept as text."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self.text: bytes | None = None
        self._watches: set[asyncio.Queue[bytes]] = set()
        self._version = 0

    def put(self, text: bytes | None) -> None:
        """The lease is this now; None: it is gone. The watches are told."""
        gone, self.text = self.text, text
        type_, told = (b"DELETED", gone or b"{}") if text is None else (b"MODIFIED", text)
        for watch in self._watches:
            watch.put_nowait(b'{"type":"%b","object":%b}\n' % (type_, told))

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, **_: object
    ) -> Response:
        await asyncio.sleep(0.01)
        if method == "POST" or (method == "PUT" and self._random.random() < 0.9):
            lease = msgspec.json.decode(body or b"")
            self._version += 1
            lease["metadata"]["resourceVersion"] = str(self._version)
            self.put(encode(lease))
        elif method == "PUT":
            raise Conflict("the lease has changed", status=409, reason="Conflict")
        if self.text is None:
            raise NotFound("there is no lease", status=404, reason="NotFound")
        return Response(200, self.text)

    @asynccontextmanager
    async def stream(
        self, path: str, *, params: Mapping[str, str], read_timeout: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._watches.add(queue)
        try:
            yield _lines(queue)
        finally:
            self._watches.remove(queue)


async def _lines(queue: "asyncio.Queue[bytes]") -> AsyncIterator[bytes]:
    while True:
        yield await queue.get()


def lease(random: Random, harm: float) -> bytes:
    """The JSON of a lease, or what is there instead."""
    if random.random() < harm:
        return encode(junk(random))
    metadata: Any = draw(META, random, harm)
    if isinstance(metadata, dict):
        metadata |= {"name": _NAME, "namespace": "kube-system", "resourceVersion": "7"}
    return encode({"metadata": metadata, "spec": draw(LEASE, random, harm)})


def _elect(
    server: LeaseServer, clock: LoopClock
) -> tuple[LeaseElector, "asyncio.Task[ElectionOutcome]"]:
    elector = LeaseElector(
        LeaseClient(server, namespace="kube-system", name=_NAME),
        ElectionSettings("me"),
        clock=clock,
        rng=np.random.default_rng(1),
    )
    return elector, asyncio.create_task(elector.run())


def run(seed: int, number: int, figures: Figures) -> None:
    """So many contents of the lease. Raises Violation when the election ends, or does not go on once the lease is
    gone.
    """
    random, listener = Random(seed), Listener()
    figures.events += number

    async def main() -> None:
        server, clock = LeaseServer(random), LoopClock()
        elector, campaign = _elect(server, clock)
        for _ in range(number):
            server.put(lease(random, random.choice([0.0, 0.05, 0.3])))
            await asyncio.sleep(random.choice([0.1, 1, 3, 20]))
            if campaign.done():  # another leads: the process ends and begins again
                figures.results.update([f"election {campaign.result().name}"])
                elector, campaign = _elect(server, clock)
        server.put(None)
        await asyncio.sleep(_SOON)
        if campaign.done() or not elector.is_leader_now():
            raise Violation(
                f"not leading {_SOON} s after the lease was deleted; {elector.statistics()}"
            )
        elector.stop()
        await campaign

    root = logging.getLogger()
    root.addHandler(listener)
    try:
        in_new_loop(main)
    finally:
        root.removeHandler(listener)
    for text in listener.tracebacks():
        raise Violation(f"an exception was logged: {text}")
