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
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    started, address = threading.Event(), list[str]()

    async def serve() -> None:
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

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        started.wait(_SECONDS)
        if not address:
            raise RuntimeError("the application does not start; its traceback is above")
        yield address[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(_SECONDS)
        loop.close()
