"""The fenced blocks and links of a Markdown document."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
GUIDE = ROOT / "docs" / "plugins.md"

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"<!-- from (\S+) -->\n\Z")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


class Block(NamedTuple):
    """One fenced block; ``origin`` is the file that it is said to be taken from, relative to the document, or empty."""

    line: int
    language: str
    text: str
    origin: str


def blocks(document: Path = GUIDE) -> Iterator[Block]:
    """The blocks in order."""
    text = document.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        marker = _MARKER.search(text[: match.start()])
        line = text[: match.start()].count("\n") + 1
        yield Block(line, match[1], match[2], marker[1] if marker else "")


def links(document: Path = GUIDE) -> list[str]:
    """The targets of all links outside of code."""
    return _LINK.findall(_FENCE.sub("", document.read_text(encoding="utf-8")))


def anchors(document: Path) -> set[str]:
    """What can stand after ``#`` in a link to the document."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(text)
    }
