"""What holds for every test."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# The same code has the same outcome, however busy the machine is: the same examples every time, with no limit on their
# time. ``--hypothesis-profile=search`` looks for others.
ALWAYS = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("always", ALWAYS)
settings.register_profile("search", ALWAYS, derandomize=False)
settings.load_profile("always")

#: Those that the commands handle, and ignore once they are asked to stop.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def pytest_sessionstart() -> None:
    """Keeps asyncio from making a loop of its own that nobody would close. Children buffer their output as users' do.

    pytest-asyncio asks for the current loop before it sets its own; in a thread that never had one, asyncio would make
    one, and its late collection would fail a test that has nothing to do with it.
    """
    asyncio.set_event_loop(None)
    os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.fixture(autouse=True)
def same_log_level() -> Iterator[None]:
    """Restores the level of the root logger: pytest keeps what is logged, and with it the frames of exceptions."""
    root = logging.getLogger()
    level = root.level
    yield
    root.setLevel(level)


@pytest.fixture(autouse=True)
def same_signals() -> Iterator[None]:
    """Restores what signals do: a child process would inherit that one is ignored, and could not be stopped with it."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
