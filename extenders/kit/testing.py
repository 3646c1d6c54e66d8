"""Serves an extender from a test: ``with serving(make_app(filter=suits)) as url: ...``."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

from aiohttp import web

_SECONDS = 60.0


@contextlib.contextmanager
def serving(app: web.Application) -> Iterator[str]:
    """The address of an application that another thread serves during the block, at a free port of 127.0.0.1."""
    loops, stop = list[asyncio.AbstractEventLoop](), asyncio.Event()
    started, address = threading.Event(), list[str]()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        try:
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            host, port = runner.addresses[0][:2]
            address.append(f"http://{host}:{port}")
            started.set()
            await stop.wait()
        finally:
            started.set()
            await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        started.wait(_SECONDS)
        if not address:
            raise RuntimeError("the application does not start; its traceback is above")
        yield address[0]
    finally:
        with contextlib.suppress(RuntimeError):  # it has ended by itself
            loops[0].call_soon_threadsafe(stop.set)
        thread.join(_SECONDS)
