"""What holds for every test."""

import asyncio


def pytest_sessionstart() -> None:
    """Keeps asyncio from making a loop of its own that nobody would close.

    pytest-asyncio asks for the current loop before it sets its own; in a thread that never had one, asyncio would make
    one, and its late collection would fail a test that has nothing to do with it.
    """
    asyncio.set_event_loop(None)
