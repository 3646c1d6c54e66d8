"""Helpers for commands: running a coroutine and reporting expected errors as ``Error: ...``."""

import asyncio
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar

import click
import uvloop

T = TypeVar("T")

PORT: Final = click.IntRange(0, 65535)
"""A port to listen on; 0 means any free one."""

GC_WHILE_FILLING: Final = (50_000, 20, 100)
"""Thresholds of the garbage collector while an embedded cluster is filled, so that it rarely runs."""

_INDENT: Final = " " * len("Error: ")


def run_loop(
    coroutine: Coroutine[Any, Any, T],
    loop_factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop,
) -> T:
    """Runs until done, by default on uvloop."""
    try:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            return runner.run(coroutine)
    finally:
        _drop_output_of_lost_terminal()


def _drop_output_of_lost_terminal() -> None:
    """Drops what cannot be written any more: the interpreter would exit with 120 for it."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError as error:
            if error.errno != errno.EIO:
                continue
            with open(os.devnull, "wb") as nowhere:
                os.dup2(nowhere.fileno(), stream.fileno())


def printable(text: str) -> str:
    r"""A text for a terminal: control characters and lone surrogates are escaped, line breaks stay.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def printable_json(value: Any) -> Any:
    """JSON with ``printable`` texts, where pods, nodes and extenders may have written them."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [printable_json(each) for each in value]
    if isinstance(value, dict):
        return {printable(key): printable_json(each) for key, each in value.items()}
    return value


@contextlib.contextmanager
def explained(*expected: type[Exception], status: int = 1) -> Iterator[None]:
    """Reports errors of these types, alone or in exception groups, as click reports its own: ``Error: ...`` and a
    status.

    An error is shown with its text, which must say what is wrong and where.
    """
    found: list[BaseException] = []
    try:
        yield
    except* expected as group:
        found = list(_leaves(group))
    if found:
        texts = dict.fromkeys(map(_text, found))
        lines = [printable(line) for text in texts for line in text.splitlines()]
        failure = click.ClickException(f"\n{_INDENT}".join(lines))
        vars(failure)["exit_code"] = status
        raise failure


def _text(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return f"{error}; choose another --port, or --port 0 for any free one"
    return str(error)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error
