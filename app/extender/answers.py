"""Reads what answers of all verbs have in common: error texts and Retry-After."""

import contextlib
import json
from collections.abc import Mapping
from typing import Any, Final

from app.wire.go_json import clean

_EXCERPT_CHARS: Final = 512
#: Longest Retry-After that is honoured, in seconds.
_LONGEST_RETRY: Final = 24 * 3600.0


def excerpt(body: bytes) -> str:
    """The error text in the body of an answer, on one line of at most 512 characters.

    It may be plain text, an Error (or error, message, detail) of a JSON object, or an HTML page.
    """
    text = body.decode("utf-8", "replace")
    with contextlib.suppress(ValueError, RecursionError):
        text = clean(_message(json.loads(text, strict=False))) or text
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_CHARS else f"{line[: _EXCERPT_CHARS - 1]}…"


def _message(answer: Any) -> str:
    if isinstance(answer, str):
        return answer
    if not isinstance(answer, dict):
        return ""
    said = {key.casefold(): value for key, value in answer.items() if isinstance(value, str)}
    return next((said[key] for key in ("error", "message", "detail") if said.get(key)), "")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds in a Retry-After header, at most a day; None if it is missing or invalid.

    A date is relative to the answer's own Date, so that clocks need not agree.
    """
    value = headers.get("Retry-After")
    if value is None:
        return None
    if value.isascii() and value.isdecimal():
        return min(float(value), _LONGEST_RETRY)
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 - few answers have a date here

    try:
        when, sent = parsedate_to_datetime(value), parsedate_to_datetime(headers.get("Date", ""))
        return min(max(0.0, (when - sent).total_seconds()), _LONGEST_RETRY)
    except (ValueError, TypeError):
        return None
