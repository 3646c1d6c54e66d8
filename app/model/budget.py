"""Limits the memory of what waits: several queues share one number of bytes."""

from typing import Any, Final

import msgspec

#: Bytes of memory that a decoded object takes for each byte of its fields as JSON, roughly.
_PER_BYTE: Final = 4
#: Bytes assumed for what cannot be written as JSON.
_UNKNOWN: Final = 4096

_ENCODER: Final = msgspec.json.Encoder(enc_hook=lambda _value: None)


class ByteBudget:
    """A number of bytes, of which parts are taken and given back."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        #: Bytes that are taken.
        self.used = 0

    @property
    def left(self) -> int:
        """Bytes that can be taken."""
        return self.limit - self.used

    def take(self, size: int) -> bool:
        """Takes ``size`` bytes; False, and nothing is taken, if fewer are left."""
        if size > self.left:
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """Returns ``size`` bytes that were taken."""
        self.used -= size


UNLIMITED: Final = 2**63 - 1


def memory_of(item: Any) -> int:
    """About how many bytes of memory a decoded object takes, without what it shares (a pod's template)."""
    if item is None:
        return 0
    try:
        return _PER_BYTE * len(_ENCODER.encode(item))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _PER_BYTE * _UNKNOWN
