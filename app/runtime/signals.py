"""Handles signals: SIGTERM and SIGINT stop the process, others are answered in the log."""

import asyncio
import contextlib
import functools
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Final

log = logging.getLogger(__name__)

#: Signals that end a process by default and have no effect here.
_MEANINGLESS: Final = {
    signal.SIGHUP: "SIGHUP has no effect: the configuration is read when the process starts, "
    "certificates and tokens whenever they change",
    signal.SIGUSR1: "SIGUSR1 has no effect: SIGUSR2 dumps the cache",
}


class StopRequest:
    """SIGTERM and SIGINT: the first asks to stop, the second ends the process at once with status 1.

    SIGHUP does the same if the log goes to a terminal, because it means that the terminal was closed. Otherwise people
    send it to reload files, or SIGUSR1 instead of SIGUSR2; these must not end a scheduler, so they are only logged.
    """

    def __init__(self) -> None:
        self.requested: Final = asyncio.Event()

    @contextlib.contextmanager
    def installed(self) -> Iterator["StopRequest"]:
        """Handles the signals during the block."""
        loop = asyncio.get_running_loop()
        handlers = self._handlers()
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield self
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)
                if self.requested.is_set():
                    # A second signal must not change the exit status.
                    signal.signal(number, signal.SIG_IGN)

    def _handlers(self) -> dict[signal.Signals, Callable[[], None]]:
        handlers = {signal.SIGTERM: self._signalled, signal.SIGINT: self._signalled}
        for number, answer in _MEANINGLESS.items():
            if signal.getsignal(number) is not signal.SIG_IGN:  # keep it ignored under nohup
                handlers[number] = functools.partial(log.warning, "%s", answer)
        if signal.SIGHUP in handlers and sys.stderr.isatty():
            handlers[signal.SIGHUP] = self._signalled
        return handlers

    def _signalled(self) -> None:
        if self.requested.is_set():
            os._exit(1)
        log.info("Requested to terminate, exiting")
        self.requested.set()


@contextlib.contextmanager
def handled(number: signal.Signals, handler: Callable[[], None]) -> Iterator[None]:
    """Calls ``handler`` on the event loop for each of these signals during the block."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
