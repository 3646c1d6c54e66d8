"""``python -m tests.bench.extender``: passes every node, at once, after a delay, or never; or crashes, or fails in
other ways.

It finds the node names by scanning the bytes, so that what is measured is the scheduler and not this program.
"""

import argparse
import asyncio
import functools
import itertools
import json
import os
import re
import time
from typing import Final

from aiohttp import web

_NODE: Final = re.compile(rb'\{"metadata":\{"name":"([^"]+)"')
_NAMES: Final = b'"NodeNames":['
_WHOLE: Final = b'"Nodes":{'
_MAX_BODY: Final = 1 << 30
FAILING: Final = ("never", "crash", "nonsense", "error", "hangup", "turns")
"""The ways in which it fails; ``crash``: the process ends at the first request; ``turns``: by ``TURNS``."""
TURNS: Final = ((40.0, ""), (45.0, "never"), (50.0, "nonsense"), (55.0, "error"), (60.0, "hangup"))
"""How it fails (not at all at first) up to each of these sixtieths of a cycle, which is a minute by the clock or
shorter.
"""
_NONSENSE: Final = (
    b"\x00\xff nonsense",
    b'{"NodeNames": 7, "Nodes": [[]], "FailedNodes": "x"}',
    b'{"NodeNames": ["no-such-node", "node-00000", "node-00000"], "FailedNodes": {"": ""}}',
    b'[{"Host": "no-such-node", "Score": 1e99}, {"Host": null}]',
    b"[" * 100_000,
)


def node_names(body: bytes) -> list[str]:
    """The names in a request, sent as names or as whole nodes."""
    at = body.find(_NAMES)
    if at >= 0:
        names: list[str] = json.loads(body[at + len(_NAMES) - 1 : body.index(b"]", at) + 1])
        return names
    return [name.decode() for name in _NODE.findall(body, body.find(_WHOLE))]


class Extender:
    """Answers after ``delay`` seconds, or fails in one of the ways of ``FAILING``."""

    def __init__(self, delay: float, failing: str = "", *, cycle: float = 60.0) -> None:
        """``cycle``: seconds in which each of the ``TURNS`` has its part."""
        self._delay = delay
        self._way = failing
        self._cycle = cycle
        self._nonsense = itertools.cycle(_NONSENSE)

    def application(self) -> web.Application:
        """The two verbs."""
        application = web.Application(client_max_size=_MAX_BODY)
        application.router.add_post("/filter", self.filter)
        application.router.add_post("/prioritize", self.prioritize)
        return application

    async def filter(self, request: web.Request) -> web.Response:
        """Every node passes."""
        body = await self._read(request)
        if self._failing:
            return self._no_sense(request)
        names = node_names(body)
        if _WHOLE in body:
            items = [{"metadata": {"name": name}} for name in names]
            return web.json_response({"Nodes": {"items": items}})
        return web.json_response({"NodeNames": names})

    async def prioritize(self, request: web.Request) -> web.Response:
        """Every node is as good as any other."""
        names = node_names(await self._read(request))
        if self._failing:
            return self._no_sense(request)
        return web.json_response([{"Host": name, "Score": 1} for name in names])

    @property
    def _failing(self) -> str:
        if self._way != "turns":
            return self._way
        at = time.time() % self._cycle / self._cycle * TURNS[-1][0]
        return next(way for until, way in TURNS if at < until)

    async def _read(self, request: web.Request) -> bytes:
        body = await request.read()
        if self._failing == "crash":
            os._exit(1)
        if self._failing == "never":
            await asyncio.Event().wait()
        if self._delay:
            await asyncio.sleep(self._delay)
        return body

    def _no_sense(self, request: web.Request) -> web.Response:
        if self._failing == "error":
            return web.Response(status=500, text="a fault that was asked for")
        if self._failing == "hangup" and request.transport is not None:
            request.transport.abort()
        return web.Response(body=next(self._nonsense), content_type="application/json")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.extender", description=__doc__)
    said = f"milliseconds before each answer, or {', '.join(FAILING)}"
    parser.add_argument("--delay", default="0", help=said)
    parser.add_argument("--cycle", type=float, default=60.0, help="seconds of all turns")
    given = parser.parse_args()
    failing = given.delay in FAILING
    extender = (
        Extender(0.0, given.delay, cycle=given.cycle)
        if failing
        else Extender(float(given.delay) / 1000)
    )
    web.run_app(
        extender.application(),
        host="127.0.0.1",
        port=0,
        access_log=None,
        shutdown_timeout=0.5,
        handler_cancellation=True,
        print=functools.partial(print, flush=True),
    )


if __name__ == "__main__":
    main()
