"""Runs child processes for the demo, simulations, the benchmark and the tests.

Each child has a process group of its own, so that nothing it started outlives it, and writes its output to a file.
"""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Seconds between SIGTERM and SIGKILL.
GRACE: Final = 10.0

#: The character after the address shows that the address is complete.
_LISTENING: Final = re.compile(r"(?i)\b(?:listening|running) on (https?://[^\s/]+)[\s/]")
_POLL_SECONDS: Final = 0.02
#: Of the program, in a checkout or as installed.
_PACKAGE: Final = __name__.partition(".")[0]
_TAIL_BYTES: Final = 4000


class ChildFailed(Exception):  # noqa: N818 - says what happened
    """A child ended or did not become ready; the text has the end of its log."""


class Child:
    """One running child process. Made by ``child``."""

    def __init__(self, process: Process, name: str, log: Path) -> None:
        self._process: Final = process
        self.name: Final = name
        self.log: Final = log

    @property
    def pid(self) -> int:
        """Its process id, and that of its group."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs, minus the signal's number if one ended it."""
        return self._process.returncode

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the child only. Does nothing if it has ended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def wait(self) -> int:
        """Waits for its end; returns its exit status."""
        return await self._process.wait()

    async def wait_unexpected_end(self) -> None:
        """Raises ChildFailed when the child ends."""
        await self.wait()
        raise self._ended()

    def _ended(self) -> ChildFailed:
        return ChildFailed(f"{self.name} has ended with status {self.status}:\n{self.tail()}")

    async def wait_url(self, seconds: float = 60.0) -> str:
        """The address after ``listening on`` or ``running on`` in its log. Raises ChildFailed."""
        found = await self.wait_output(_LISTENING, "did not say where it listens", seconds)
        return found[1]

    async def wait_output(
        self, pattern: re.Pattern[str], problem: str, seconds: float
    ) -> re.Match[str]:
        """Waits until the pattern matches in its log. Raises ChildFailed with ``problem`` if it does not."""
        try:
            async with asyncio.timeout(seconds):
                while self.status is None:
                    if found := pattern.search(self.tail()):
                        return found
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            said = f"{self.name} {problem} within {seconds:.0f} s"
            raise ChildFailed(f"{said}:\n{self.tail()}") from None
        raise self._ended()

    def tail(self) -> str:
        """The end of its log."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - _TAIL_BYTES))
            return file.read().decode(errors="replace")

    async def stop(self, grace: float = GRACE) -> int:
        """Sends SIGTERM, and SIGKILL after ``grace`` seconds; returns its exit status."""
        self.send(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace):
                return await self.wait()
        except TimeoutError:
            self.kill()
            return await self.wait()

    def kill(self) -> None:
        """Ends the whole process group at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


async def _finished(work: Awaitable[T]) -> T:
    """Awaits short work to its end even if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    return task.result()


async def _started(starting: Coroutine[Any, Any, Process]) -> Process:
    """The process, once it runs. If cancelled, kills the process first: a start that is abandoned leaves a zombie."""
    task = asyncio.ensure_future(starting)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        process = await _finished(task)
        process.kill()
        await _finished(process.wait())
        raise


@contextlib.asynccontextmanager
async def child(
    command: Sequence[str], *, log: Path, name: str = "", env: Mapping[str, str] | None = None
) -> AsyncIterator[Child]:
    """Starts a process; it is stopped at the end of the block, and killed if the block raises.

    ``env`` adds to the environment.
    """
    with log.open("ab") as file:
        process = await _started(
            asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=file,
                stderr=asyncio.subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        )
    running = Child(process, name or command[0], log)
    try:
        yield running
        await running.stop()
    finally:
        running.kill()
        if running.status is None:
            await _finished(running.wait())


@contextlib.contextmanager
def reserved_port() -> Iterator[int]:
    """A port of 127.0.0.1 that the system gives to no other process during the block; a child can listen on it."""
    with socket.socket() as held:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        port: int = held.getsockname()[1]
        yield port


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs an installed module.

    ``-P``: a file of the same name in the working directory must not be run in its place.
    """
    return [sys.executable, "-P", "-m", name, *arguments]


def scheduler(config: Path, *flags: str, log: Path) -> AbstractAsyncContextManager[Child]:
    """``run`` with a configuration file, as a user would start it."""
    command = module(_PACKAGE, "run", "--config", str(config), *flags)
    return child(command, log=log, name="the scheduler")


async def interruptible(work: Coroutine[Any, Any, T]) -> T | None:
    """The result, or None if SIGINT or SIGTERM cancels the work. For the top level of a program.

    After that the program is about to end, and further signals are ignored.
    """
    loop = asyncio.get_running_loop()
    running = asyncio.ensure_future(work)
    numbers = (signal.SIGINT, signal.SIGTERM)
    for number in numbers:
        loop.add_signal_handler(number, running.cancel)
    try:
        return await running
    except asyncio.CancelledError:
        return None
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            if running.cancelled():
                signal.signal(number, signal.SIG_IGN)


@contextlib.asynccontextmanager
async def watched(*children: Child) -> AsyncIterator[None]:
    """Raises ChildFailed (in an exception group) if a child ends during the block."""
    async with asyncio.TaskGroup() as group:
        guards = [group.create_task(each.wait_unexpected_end()) for each in children]
        yield
        for guard in guards:
            guard.cancel()
