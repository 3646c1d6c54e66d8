"""What can be learned from any answer of an extender, whatever the verb."""

import contextlib
import email.utils
import json
from collections.abc import Mapping
from typing import Any, Final

from app.wire.go_json import clean

_EXCERPT_CHARS: Final = 512
#: Seconds; whoever asks for more is asking for good.
_LONGEST_RETRY: Final = 24 * 3600.0


def excerpt(body: bytes) -> str:
    """What the body of an error answer says, on one line of at most 512 characters.

    Extenders put it into plain text, into an Error (or error, message, detail) of a JSON object, or into pages.
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
    """The seconds, at most a day, that a Retry-After header asks for; None without one that can be read.

    A date is taken relative to the answer's own Date, so that clocks need not agree.
    """
    value = headers.get("Retry-After")
    if value is None:
        return None
    if value.isascii() and value.isdecimal():
        return min(float(value), _LONGEST_RETRY)
    try:
        when = email.utils.parsedate_to_datetime(value)
        sent = email.utils.parsedate_to_datetime(headers.get("Date", ""))
        return min(max(0.0, (when - sent).total_seconds()), _LONGEST_RETRY)
    except (ValueError, TypeError):
        return None
