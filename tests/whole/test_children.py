"""Child processes: real ones."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest
import uvloop

from app.runtime.children import ChildFailed, child, watched

pytestmark = pytest.mark.whole

SLEEP = "import time; time.sleep(60)"
STUBBORN = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('listening on http://127.0.0.1:1', flush=True); time.sleep(60)"
)
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


async def test_nothing_that_it_started_outlives_it(tmp_path: Path) -> None:
    async with child(python(WITH_CHILD), log=tmp_path / "log") as running:
        await running.wait_url()
        inner = int(running.tail().split()[1])
        assert psutil.pid_exists(inner)
    _gone, alive = psutil.wait_procs(
        [psutil.Process(inner)] if psutil.pid_exists(inner) else [], timeout=10
    )
    assert not alive or alive[0].status() == psutil.STATUS_ZOMBIE


def test_one_that_is_given_up_while_it_starts_is_gone(tmp_path: Path) -> None:
    async def begin() -> None:
        async with child(python(SLEEP), log=tmp_path / "log"):
            await asyncio.sleep(60)

    async def give_up(steps: int) -> list[psutil.Process]:
        before = set(psutil.Process().children())
        beginning = asyncio.ensure_future(begin())
        for _ in range(steps):
            await asyncio.sleep(0)
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        return [each for each in psutil.Process().children() if each not in before]

    # The loop of the commands: the one of the standard library waits for the process by itself.
    for steps in range(1, 6):
        assert not uvloop.run(give_up(steps)), steps
