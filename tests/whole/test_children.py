"""Child processes: real ones."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import uvloop

from app.tools.subprocesses import ChildFailed, child, reserved_port, watched
from tests.whole.harness import WAIT_SECONDS, wait_for

pytestmark = pytest.mark.whole

SLEEP = "import time; time.sleep(60)"
STUBBORN = (
    "import os, signal, time; signal.signal(signal.SIGTERM, lambda *_: os.write(1, b'asked')); "
    "print('listening on http://127.0.0.1:1', flush=True); time.sleep(60)"
)
HESITANT = (
    "import os, signal, time; signal.signal(signal.SIGUSR1, lambda *_: os.write(1, b'11/ ===')); "
    "print('listening on http://127.0.0.1:47', end='', flush=True); "
    f"{SLEEP}"
)
#: Cleans up until its log is empty.
INTERRUPTIBLE = """
import asyncio, os, sys, uvloop
from app.tools.subprocesses import interruptible
async def main():
    say("running")
    assert await interruptible(asyncio.Event().wait()) is None
    say("cleaning up")
    while os.fstat(1).st_size:
        pass
def say(text):
    print(text, flush=True)
uvloop.run(main())
sys.exit(7)
"""
WITH_CHILD = (
    "import subprocess, sys, time; "
    f"inner = subprocess.Popen([sys.executable, '-c', {SLEEP!r}]); "
    "print(f'inner {inner.pid} listening on http://127.0.0.1:2/path', flush=True); time.sleep(60)"
)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def test_the_address_is_read_from_what_it_prints(tmp_path: Path) -> None:
    code = f"print('Running on http://127.0.0.1:4711/ ===', flush=True); {SLEEP}"
    async with child(python(code), log=tmp_path / "log") as running:
        assert await running.wait_url() == "http://127.0.0.1:4711"
        assert running.status is None
    assert running.status == -15


async def test_half_an_address_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    async with child(python(HESITANT), log=tmp_path / "log") as running:
        while not running.tail().endswith(":47"):
            await asyncio.sleep(0)
        with pytest.raises(ChildFailed, match="did not say where it listens"):
            await running.wait_url(seconds=0.05)
        running.send(signal.SIGUSR1)
        assert await running.wait_url() == "http://127.0.0.1:4711"


async def test_one_that_ends_early_is_told_with_its_log(tmp_path: Path) -> None:
    code = "import sys; sys.exit('no such luck')"
    async with child(python(code), log=tmp_path / "log", name="it") as running:
        with pytest.raises(ChildFailed, match=r"(?s)it has ended with status 1:.*no such luck"):
            await running.wait_url()


async def test_one_that_says_nothing(tmp_path: Path) -> None:
    async with child(python(SLEEP), log=tmp_path / "log", name="it") as running:
        with pytest.raises(ChildFailed, match=r"it did not say where it listens within 0 s"):
            await running.wait_url(seconds=0.05)


async def test_an_end_interrupts_the_block(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with child(python("pass"), log=tmp_path / "log") as running, watched(running):
            await asyncio.sleep(60)
    assert caught.group_contains(ChildFailed, match="has ended with status 0")


async def test_a_stubborn_one_is_ended(tmp_path: Path) -> None:
    async with child(python(STUBBORN), log=tmp_path / "log") as running:
        await running.wait_url()
        assert await running.stop(grace=0.1) == -9


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended; where nobody waits for orphans they stay as zombies."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def test_nothing_that_it_started_outlives_it(tmp_path: Path) -> None:
    async with child(python(WITH_CHILD), log=tmp_path / "log") as running:
        await running.wait_url()
        inner = psutil.Process(int(running.tail().split()[1]))
        assert not is_gone(inner)
    wait_for("its end", lambda: is_gone(inner))


class GivenUp:
    """A block of ``child`` in a task, cancelled on its way: afterwards none of our children may be left, not even a
    zombie.
    """

    def __init__(self, code: str, log: Path) -> None:
        self._before = set(psutil.Process().children())
        self.leave, self.task = asyncio.Event(), asyncio.ensure_future(self._run(code, log))

    async def _run(self, code: str, log: Path) -> None:
        async with child(python(code), log=log) as running:
            await running.wait_url()
            await self.leave.wait()

    async def cancel(self, *, then_again_after: int) -> None:
        """Once, and once more after so many steps of the loop."""
        self.task.cancel()
        for _ in range(then_again_after):
            await asyncio.sleep(0)
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task

    def left(self) -> list[psutil.Process]:
        return [each for each in psutil.Process().children() if each not in self._before]


# The loop of the commands: the one of the standard library waits for the process by itself.


@pytest.mark.parametrize("steps", range(1, 6))
def test_one_that_is_given_up_while_it_starts_is_gone(tmp_path: Path, steps: int) -> None:
    async def give_up(again: int) -> list[psutil.Process]:
        given_up = GivenUp(SLEEP, tmp_path / "log")
        for _ in range(steps):
            await asyncio.sleep(0)
        await given_up.cancel(then_again_after=again)
        return given_up.left()

    for again in range(4):
        assert not uvloop.run(give_up(again)), again


def test_one_that_is_given_up_while_it_is_asked_to_end_is_gone(tmp_path: Path) -> None:
    async def give_up(again: int) -> list[psutil.Process]:
        log = tmp_path / f"log-{again}"
        given_up = GivenUp(STUBBORN, log)
        given_up.leave.set()
        while not log.exists() or b"asked" not in log.read_bytes():
            await asyncio.sleep(0.01)
        await given_up.cancel(then_again_after=again)
        return given_up.left()

    for again in range(4):
        assert not uvloop.run(give_up(again)), again


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_who_is_interrupted_cleans_up_however_often_that_is_asked_for(
    tmp_path: Path, first: signal.Signals
) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(python(INTERRUPTIBLE), stdout=out)
    try:
        wait_for("its beginning", lambda: log.read_text() == "running\n")
        process.send_signal(first)
        wait_for("its end", lambda: log.read_text() == "running\ncleaning up\n")
        for number in (signal.SIGINT, signal.SIGTERM):
            process.send_signal(number)
        os.truncate(log, 0)
        assert process.wait(WAIT_SECONDS) == 7
    finally:
        process.kill()
        process.wait()


def test_a_reserved_port_is_free_for_whoever_is_told_it() -> None:
    with reserved_port() as port:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        for address in ("127.0.0.1", "0.0.0.0"):
            with socket.create_server((address, port)):
                socket.create_connection(("127.0.0.1", port)).close()
