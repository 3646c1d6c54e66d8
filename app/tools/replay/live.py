"""Calls extenders as they are from a replay: the answer is waited for, and its time passes in the replay."""

import asyncio
import os
import threading
from collections.abc import Mapping
from typing import Final

from app.extender.client import transport_for
from app.extender.config import ExtenderConfig
from app.extender.exchange import ExtenderResponse, Large
from app.extender.tls import TLSSource
from app.extender.transport import HTTPTransport
from app.runtime.clock import stopwatch
from app.wire.extender_v1 import Body


class LiveExtenders:
    """A thread with an event loop, in which the calls are made."""

    def __init__(self) -> None:
        self.loop: Final = asyncio.new_event_loop()
        self._thread: Final = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def transport(self, config: ExtenderConfig) -> HTTPTransport:
        """By what an extender is called. Raises ExtenderConfigError."""
        return _Live(self, transport_for(config, TLSSource(config), os.environ))

    def close(self) -> None:
        """Ends the thread."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class _Live(HTTPTransport):
    def __init__(self, extenders: LiveExtenders, real: HTTPTransport) -> None:
        super().__init__()
        self._extenders: Final = extenders
        self._real: Final = real
        self._now: Final = stopwatch()

    async def post(
        self,
        url: str,
        body: Body,
        *,
        headers: Mapping[str, str],
        timeout_seconds: float,
        large: Large | None = None,
    ) -> ExtenderResponse:
        """See HTTPTransport. Nothing else happens in the replay until the answer is there; then its time passes."""
        began = self._now()
        call = self._real.post(
            url, body, headers=headers, timeout_seconds=timeout_seconds, large=large
        )
        calling = asyncio.run_coroutine_threadsafe(call, self._extenders.loop)
        try:
            return calling.result(timeout_seconds + 5.0)
        finally:
            await asyncio.sleep(self._now() - began)

    async def close(self) -> None:
        """See HTTPTransport."""
        asyncio.run_coroutine_threadsafe(self._real.close(), self._extenders.loop).result(5.0)
