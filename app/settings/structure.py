"""Converts plain values to models, and reports all mistakes of shape together."""

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from app.settings.base import Model
from app.settings.problems import Finding, Locator, Path

M = TypeVar("M", bound=Model)


class Decoded(msgspec.Struct, Generic[M], frozen=True):
    """The model of what could be decoded, and the mistakes."""

    model: M
    findings: tuple[Finding, ...]
    """Every mistake of shape."""
    lost: frozenset[Path]
    """The removed paths; findings of later checks there are consequences, not mistakes."""

    def genuine(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """The findings that are not about removed paths."""
        for finding in findings:
            path = finding.path
            if not any(path[:length] in self.lost for length in range(1, len(path) + 1)):
                yield finding


def decode(model: type[M], value: dict[str, Any], locator: Locator) -> Decoded[M]:
    """Decodes ``value`` as ``model``, with its mistakes."""
    try:
        return Decoded(msgspec.convert(value, model), (), frozenset())
    except msgspec.ValidationError:
        # There may be more mistakes, and nulls are none. Pydantic takes long to import.
        from app.settings.mistakes import find_mistakes  # noqa: PLC0415

        return Decoded(*find_mistakes(model, value, locator))
