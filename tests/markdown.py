"""Markdown documents as tests read them: fenced blocks, commands, links and anchors."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: Every document of the repository.
DOCUMENTS = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not {"node_modules", "build", "dist"} & set(path.parts)
    and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_MARKER = re.compile(r"<!-- from (\S+) -->\n\Z")
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)


class Block(NamedTuple):
    """One fenced block; ``origin`` is the file that it is said to be taken from, relative to the document, or empty."""

    line: int
    language: str
    text: str
    origin: str


def blocks(document: Path) -> Iterator[Block]:
    """The blocks in order."""
    text = document.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        marker = _MARKER.search(text[: match.start()])
        line = text[: match.start()].count("\n") + 1
        yield Block(line, match[2], match[3], marker[1] if marker else "")


def commands(document: Path) -> list[str]:
    """The commands of its console blocks: what follows ``$``, up to a comment, a pipe or ``&&``."""
    lines = [
        line.strip().removeprefix("$ ")
        for block in blocks(document)
        if block.language == "console"
        for line in re.sub(r" *\\\n *", " ", block.text).splitlines()
        if line.strip().startswith("$ ")
    ]
    return [part for line in lines for part in _simple(line)]


def _simple(line: str) -> Iterator[str]:
    """The commands of one line of a shell, without redirections."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    skip = False
    for word in lexer:
        if set(word) <= set("();<>|&"):
            skip = "<" in word or ">" in word
            if words and not skip:
                yield shlex.join(words)
                words = []
        elif skip:
            skip = False
        else:
            words.append(word)
    if words:
        yield shlex.join(words)


def prose(document: Path) -> str:
    """The text without its fenced blocks."""
    return _FENCE.sub("", document.read_text(encoding="utf-8"))


def code_spans(document: Path) -> list[str]:
    """The code inside of sentences."""
    return [match[2].strip() for match in _CODE.finditer(prose(document))]


def links(document: Path) -> list[str]:
    """The targets of all links outside of code."""
    return _LINK.findall(_CODE.sub("", prose(document)))


def headings(document: Path) -> list[str]:
    """The headings, as anchors."""
    return [anchor(heading) for heading in _HEADING.findall(prose(document))]


def anchor(heading: str) -> str:
    """What stands after ``#`` in a link to a heading."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def anchors(document: Path) -> set[str]:
    """All that can stand after ``#``; of equal headings the second one gets ``-1``, and so on."""
    found: set[str] = set()
    seen: dict[str, int] = {}
    for name in headings(document):
        number = seen.get(name, 0)
        seen[name] = number + 1
        found.add(f"{name}-{number}" if number else name)
    return found
