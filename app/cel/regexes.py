"""Regular expressions in RE2's syntax. They take linear time: anyone may write a selector."""

import functools
from typing import Any

from app.cel.errors import EvaluationError


@functools.lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """A pattern. Raises EvaluationError."""
    import re2  # noqa: PLC0415 - few expressions need it

    options = re2.Options()
    options.log_errors = False
    options.max_mem = 2**21
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0]
        raise EvaluationError(
            _complaint(text.decode() if isinstance(text, bytes) else str(text))
        ) from None


_WORDS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "trailing \\": "trailing backslash at end of expression",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}
"""What Go says instead."""


def _complaint(text: str) -> str:
    mistake, _, part = text.partition(": ")
    return f"error parsing regexp: {_WORDS.get(mistake, mistake)}: `{part}`"


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern is found anywhere in the text."""
    return compiled(pattern).search(text) is not None


def find(text: str, pattern: str) -> str:
    """The first match, or an empty string."""
    match = _search(pattern).search(text)
    return str(match[0]) if match else ""


def find_all(text: str, pattern: str, limit: int = -1) -> tuple[str, ...]:
    """All matches that do not overlap; an empty one right behind another is left out."""
    regex = _search(pattern)
    found: list[str] = []
    at, before = 0, -1
    while at <= len(text) and (limit < 0 or len(found) < limit):
        match = regex.search(text, at)
        if match is None:
            break
        start, end = match.span()
        empty_behind = end == at and start == before
        at = at + 1 if end == at else end
        before = end
        if not empty_behind:
            found.append(match[0])
    return tuple(found)


def _search(pattern: str) -> Any:
    try:
        return compiled(pattern)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None
