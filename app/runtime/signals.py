"""Signals: those that ask the process to stop, and those that it answers and lives on."""

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

#: Signals that end a process by default and say nothing to this one.
_MEANINGLESS: Final = {
    signal.SIGHUP: "SIGHUP has no effect: the configuration is read when the process starts, "
    "certificates and tokens whenever they change",
    signal.SIGUSR1: "SIGUSR1 has no effect: SIGUSR2 dumps the cache",
}


class StopRequest:
    """SIGTERM and SIGINT: the first asks to stop, the second ends the process at once with status 1.

    SIGHUP does the same where the log goes to a terminal: it says that the terminal has been closed. Elsewhere people send
    it to have files read again, or SIGUSR1 in place of SIGUSR2: neither may end a scheduler, so they are answered in the log.
    """

    def __init__(self) -> None:
        self.requested: Final = asyncio.Event()

    @contextlib.contextmanager
    def installed(self) -> Iterator["StopRequest"]:
        """Listens for the signals."""
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
                    # A second request must not turn a good end into a bad one.
                    signal.signal(number, signal.SIG_IGN)

    def _handlers(self) -> dict[signal.Signals, Callable[[], None]]:
        handlers = {signal.SIGTERM: self._signalled, signal.SIGINT: self._signalled}
        for number, answer in _MEANINGLESS.items():
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it to stay ignored
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
    """Calls ``handler`` on the event loop whenever this signal comes, for the length of the block."""
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
