"""Replays a recording from beginning to end, and says what was decided and where that differs."""

import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from app.scheduler.trace import Header, Op, TraceError
from app.tools.replay.reading import TraceRecord, records
from app.tools.replay.world import Difference, RecordError, World


class ReplayResult(msgspec.Struct):
    """What a replay found."""

    #: Of all decisions, in their order: equal for equal replays.
    hash: str
    #: Decisions about pods without extenders and groups, made once more.
    decisions: int
    #: Decisions that were taken as recorded.
    adopted: int
    differences: list[Difference]
    records: dict[str, int]
    #: Seconds from the first to the last record.
    seconds: float
    gaps: int = 0
    #: Why not all of the recording was read; empty if it was.
    incomplete: str = ""


class _Stop(Exception):  # noqa: N818 - not an error: a difference is found
    pass


def replay(
    trace: Path, classes: Mapping[str, type], *, most: int = 1, look: Callable[[int], None]
) -> ReplayResult:
    """Replays a recording's files; stops at the ``most``-th difference. ``look`` is called with the number of records.

    Raises TraceError if nothing can be read, ConfigurationError, PluginError.
    """
    run = _Run(classes, most)
    incomplete = ""
    try:
        for record in records(trace):
            run.take(record)
            if not record.number % 10_000:
                look(record.number)
    except _Stop:
        pass
    except TraceError as error:
        if run.world is None:
            raise
        incomplete = str(error)
    if run.world is None:
        raise TraceError(f"{trace}: it is empty")
    return run.result(incomplete)


def state_after(trace: Path, classes: Mapping[str, type]) -> World:
    """The scheduler as it is at the end of a recording. Raises TraceError, ConfigurationError, PluginError."""
    run = _Run(classes, sys.maxsize)
    for record in records(trace):
        run.take(record)
    if run.world is None:
        raise TraceError(f"{trace}: it is empty")
    return run.world


class _Run:
    def __init__(self, classes: Mapping[str, type], most: int) -> None:
        self._classes: Final = classes
        self._most: Final = most
        self.world: World | None = None
        self._gaps = 0
        self._digest: Final = hashlib.sha256()
        self._differences: Final[list[Difference]] = []
        self._records: Final[Counter[str]] = Counter()
        self._decisions = self._adopted = 0
        self._began = 0.0

    def take(self, record: TraceRecord) -> None:
        """Takes the next record. Raises TraceError."""
        header = record.header
        if header is not None:
            self._begin(header)
            return
        world, name = self.world, str(record.fields[0])
        assert world is not None  # noqa: S101 - a file begins with a header
        if record.repeated:
            return
        try:
            world.take(record.fields)
        except RecordError as error:
            raise TraceError(f"{record.file}: record {record.number} ({name}): {error}") from error
        self._records[name] += 1
        if not self._began:
            self._began = world.clock.now

    def _begin(self, header: Header) -> None:
        if self.world is not None and not header.gap and not header.first:
            self.world.restart_numbers()
            return
        self._count()
        self._gaps += self.world is not None
        self.world = World(header, self._classes, differs=self._differ, decided=self._decided)

    def _differ(self, difference: Difference) -> None:
        self._differences.append(difference)
        if len(self._differences) >= self._most:
            raise _Stop

    def _decided(self, uid: str, what: str) -> None:
        self._digest.update(f"{uid}\0{what}\0".encode())

    def _count(self) -> None:
        if self.world is not None:
            self._decisions += self.world.repeated
            self._adopted += self.world.adopted

    def result(self, incomplete: str) -> ReplayResult:
        """What was found."""
        assert self.world is not None  # noqa: S101 - the caller has looked
        self._count()
        return ReplayResult(
            hash=self._digest.hexdigest(),
            decisions=self._decisions,
            adopted=self._adopted,
            differences=self._differences,
            records={Op(name).name: n for name, n in sorted(self._records.items())},
            seconds=round(max(0.0, self.world.clock.now - self._began), 3),
            gaps=self._gaps,
            incomplete=incomplete,
        )
