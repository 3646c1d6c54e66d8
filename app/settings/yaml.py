"""Reads YAML or JSON text: ``read_documents`` with the line and column of each value, ``load_documents`` without them.

Nearly all configurations and kubeconfigs are plain (``plain_yaml``). Whatever else is in a text, mistakes included,
is left to ``full_yaml``: importing PyYAML takes a twelfth of all instructions of a start.
"""

import functools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.settings.plain_yaml import Document, YamlText, plain_values
from app.settings.problems import Mark, Path


def read_documents(text: str) -> YamlText:
    """Parses all non-empty documents of a YAML or JSON text; never raises for invalid text."""
    values = plain_values(text)
    if values is None:
        from app.settings import full_yaml  # noqa: PLC0415 - see above

        return full_yaml.read_documents(text)
    return YamlText(
        tuple(Document(value, _Marks(text, number)) for number, value in enumerate(values))
    )


def load_documents(text: bytes | str, *, surrogates: bool = False) -> list[Any]:
    """All documents that are not empty. Raises ValueError and RecursionError.

    With ``surrogates`` escaped ones are read as they are, which takes ten times as long, for 100,000 values at most.
    """
    values = plain_values(text) if isinstance(text, str) else None
    if values is None:
        from app.settings import full_yaml  # noqa: PLC0415 - see above

        return full_yaml.load_documents(text, surrogates=surrogates)
    return values


class _Marks(Mapping[Path, Mark]):
    """The marks of a document of a plain text, looked for when the first is asked for."""

    def __init__(self, text: str, number: int) -> None:
        self._text: Final = text
        self._number: Final = number

    @functools.cached_property
    def _found(self) -> Mapping[Path, Mark]:
        from app.settings import full_yaml  # noqa: PLC0415 - see above

        return full_yaml.read_documents(self._text).documents[self._number].marks

    def __getitem__(self, path: Path) -> Mark:
        return self._found[path]

    def __iter__(self) -> Iterator[Path]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)
