"""Limits the memory of what waits: several queues share one number of bytes."""

from collections import Counter
from typing import Any, Final

import msgspec

from app.model.pod import PodTemplate

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
        #: By template: how often it was taken.
        self._templates: Final[Counter[PodTemplate]] = Counter()

    @property
    def left(self) -> int:
        """Bytes that can be taken."""
        return self.limit - self.used

    def take(self, size: int, template: PodTemplate | None = None) -> bool:
        """Takes ``size`` bytes and those of a template, which is counted once however often it is taken.

        Returns False, and takes nothing, if fewer are left.
        """
        if template is not None and not self._templates[template]:
            size += _PER_BYTE * len(template.text)
        if size > self.left:
            return False
        self.used += size
        if template is not None:
            self._templates[template] += 1
        return True

    def give_back(self, size: int, template: PodTemplate | None = None) -> None:
        """Returns what was taken with these arguments."""
        self.used -= size
        if template is not None:
            self._templates[template] -= 1
            if not self._templates[template]:
                del self._templates[template]
                self.used -= _PER_BYTE * len(template.text)


UNLIMITED: Final = 2**63 - 1


def memory_of(item: Any) -> int:
    """About how many bytes of memory a decoded object takes, without the template that a pod shares."""
    if item is None:
        return 0
    try:
        return _PER_BYTE * len(_ENCODER.encode(item))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return _PER_BYTE * _UNKNOWN


def template_of(old: Any, new: Any) -> PodTemplate | None:
    """The template of the pod that an event is about; None for other objects."""
    template = getattr(new or old, "template", None)
    return template if isinstance(template, PodTemplate) else None
