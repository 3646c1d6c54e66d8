"""Problems of a configuration and their places in the file.

A rule yields a ``Finding``: a path into the configuration and kube-scheduler's text. A ``Locator`` has the lines of the
file and converts findings into ``Problem`` values, which are reported.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple, Self, TypeVar

import msgspec

T = TypeVar("T")

_MIN_SIMILARITY: Final = 0.7

Path = tuple[str | int, ...]
"""Keys and list indices from the root of a document."""


class Mark(NamedTuple):
    """A place in a file; both count from 1, and line 0 means "not in the file"."""

    line: int
    column: int


NOWHERE = Mark(0, 0)


class Finding(msgspec.Struct, frozen=True):
    """One mistake or warning, without its place in the file."""

    path: Path
    message: str
    near: Path = ()
    """Where to point when ``path`` itself is absent from the file, for example the verb that a missing weight belongs
    to.
    """


Findings = Iterator[Finding]


class Problem(msgspec.Struct, frozen=True, order=True):
    """One mistake or warning with its place in the file; ordered by place."""

    line: int
    """The line, from 1; 0 when the value did not come from the file (a flag, a default)."""
    column: int
    """The column, from 1; 0 with line 0."""
    path: str
    """The field in kube-scheduler's notation, ``profiles[0].pluginConfig[1].args.shape``; empty for the whole file."""
    message: str
    """What is wrong, in kube-scheduler's words where it has some."""

    def render(self, source: str) -> str:
        """``FILE:LINE:COLUMN: path: message``, without the parts that are unknown."""
        place = f"{source}:{self.line}:{self.column}" if self.line else source
        return ": ".join(part for part in (place, self.path, self.message) if part)


class ConfigurationError(Exception):
    """All mistakes of a configuration, in the order of the file."""

    def __init__(
        self,
        problems: Iterable[Problem],
        *,
        source: str = "configuration",
        warnings: Iterable[Problem] = (),
    ) -> None:
        self.problems: tuple[Problem, ...] = tuple(sorted(set(problems)))
        self.warnings: tuple[Problem, ...] = tuple(sorted(set(warnings)))
        """Warnings; those of a conversion often explain the mistakes."""
        self.source = source
        """The name of the file, as the user wrote it."""
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(problem.render(self.source) for problem in self.problems)


def render_path(path: Path) -> str:
    """``("profiles", 0, "plugins")`` as ``profiles[0].plugins``."""
    text = ""
    for element in path:
        if isinstance(element, int):
            text += f"[{element}]"
        else:
            text += f".{element}" if text else element
    return text


def _nearest(path: Path, table: Mapping[Path, T]) -> T | None:
    """The entry for the path, or for the closest thing around it that has one."""
    prefixes = (path[:length] for length in range(len(path), -1, -1))
    return next((table[prefix] for prefix in prefixes if prefix in table), None)


class Locator(msgspec.Struct, frozen=True):
    """Finds the place in the file of any path of one document.

    A file of an older version is converted before it is checked. ``origins`` has the place in the file of each subtree
    that the conversion moved, so that problems name what the user wrote; ``causes`` has, for each subtree that it
    generated, the place that caused it, so that problems point there.
    """

    marks: Mapping[Path, Mark]
    origins: Mapping[Path, Path] = msgspec.field(default_factory=dict)
    causes: Mapping[Path, Path] = msgspec.field(default_factory=dict)

    @classmethod
    def nowhere(cls) -> Self:
        """The locator of a configuration that came from no file."""
        return cls(marks={})

    def origin(self, path: Path) -> Path:
        """The path in the file."""
        for length in range(len(path), 0, -1):
            prefix = path[:length]
            if prefix in self.origins:
                return self.origins[prefix] + path[length:]
            if prefix in self.causes:
                break
        return path

    def cause(self, path: Path) -> Path | None:
        """The path in the file that caused ``path``, if the conversion generated it."""
        return _nearest(path, self.causes)

    def mark(self, path: Path) -> Mark:
        """The place of ``path``, or of the closest thing around it that the file has."""
        return _nearest(path, self.marks) or NOWHERE

    def problem(self, finding: Finding) -> Problem:
        """The finding with its place."""
        path = self.origin(finding.path)
        cause = self.cause(finding.path) if path == finding.path else None
        pointed = path if path in self.marks or not finding.near else self.origin(finding.near)
        mark = self.mark(cause or pointed)
        return Problem(mark.line, mark.column, render_path(path), finding.message)

    def problems(self, findings: Iterable[Finding]) -> tuple[Problem, ...]:
        """All findings with their places, in the order of the file, each once."""
        return tuple(sorted({self.problem(finding) for finding in findings}))


def closest(name: str, known: Iterable[str], *, similarity: float = _MIN_SIMILARITY) -> str | None:
    """The known name that was probably meant: the same in another case, or a similar one; else None."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    from difflib import get_close_matches  # noqa: PLC0415 - for mistakes only

    matches = get_close_matches(name.lower(), by_lower, n=1, cutoff=similarity)
    return by_lower[matches[0]] if matches else None
