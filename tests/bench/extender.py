"""``python -m tests.bench.extender``: passes every node, at once, after a delay, or never.

It finds the node names by scanning the bytes, so that what is measured is the scheduler and not this program.
"""

import argparse
import asyncio
import functools
import json
import re
from typing import Final

from aiohttp import web

_NODE: Final = re.compile(rb'\{"metadata":\{"name":"([^"]+)"')
_NAMES: Final = b'"NodeNames":['
_WHOLE: Final = b'"Nodes":{'
_MAX_BODY: Final = 1 << 30


def node_names(body: bytes) -> list[str]:
    """The names in a request, sent as names or as whole nodes."""
    at = body.find(_NAMES)
    if at >= 0:
        names: list[str] = json.loads(body[at + len(_NAMES) - 1 : body.index(b"]", at) + 1])
        return names
    return [name.decode() for name in _NODE.findall(body, body.find(_WHOLE))]


class Extender:
    """Counts its calls; ``delay`` in seconds, None for never."""

    def __init__(self, delay: float | None) -> None:
        self._delay = delay

    def application(self) -> web.Application:
        """The two verbs."""
        application = web.Application(client_max_size=_MAX_BODY)
        application.router.add_post("/filter", self.filter)
        application.router.add_post("/prioritize", self.prioritize)
        return application

    async def filter(self, request: web.Request) -> web.Response:
        """Every node passes."""
        body = await self._read(request)
        names = node_names(body)
        if _WHOLE in body:
            items = [{"metadata": {"name": name}} for name in names]
            return web.json_response({"Nodes": {"items": items}})
        return web.json_response({"NodeNames": names})

    async def prioritize(self, request: web.Request) -> web.Response:
        """Every node is as good as any other."""
        names = node_names(await self._read(request))
        return web.json_response([{"Host": name, "Score": 1} for name in names])

    async def _read(self, request: web.Request) -> bytes:
        body = await request.read()
        if self._delay is None:
            await asyncio.Event().wait()
        elif self._delay:
            await asyncio.sleep(self._delay)
        return body


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.extender", description=__doc__)
    parser.add_argument("--delay", default="0", help="milliseconds before each answer, or 'never'")
    arguments = parser.parse_args()
    delay = None if arguments.delay == "never" else float(arguments.delay) / 1000
    web.run_app(
        Extender(delay).application(),
        host="127.0.0.1",
        port=0,
        access_log=None,
        shutdown_timeout=0.5,
        handler_cancellation=True,
        print=functools.partial(print, flush=True),
    )


if __name__ == "__main__":
    main()
