"""Bodies of calls to extenders, as the log and the histories show them."""

import re
from collections.abc import Sequence
from typing import Final

#: Values of environment variables, and of the annotation that repeats them, also if they are cut off.
_SECRET: Final = re.compile(
    r'("name":"(?:[^"\\]|\\.)*","value":"|"kubectl\.kubernetes\.io/last-applied-configuration":")'
    r'(?:[^"\\]|\\.)*\\?("|\Z)'
)


def beginning(pieces: Sequence[bytes], limit: int) -> bytes:
    """The first ``limit`` bytes."""
    found = b""
    for piece in pieces:
        found += piece[: limit - len(found)]
        if len(found) == limit:
            break
    return found


def without_secrets(body: bytes) -> str:
    """The text of a JSON body, possibly cut off, without the values of environment variables."""
    return _SECRET.sub(r"\1REDACTED\2", body.decode(errors="replace"))
