"""The journal of a shadow: verdicts and comparisons as JSON lines in files of limited size, the oldest of which are deleted."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from app.tools.shadow.comparison import Comparison
from app.tools.shadow.verdict import Verdict

log = logging.getLogger(__name__)

#: The number of files among which the size is divided.
_FILES: Final = 8
_PATTERN: Final = "verdicts-*.jsonl"
#: Seconds between two writes.
_PAUSE: Final = 0.5
_VERDICT: Final = msgspec.json.Decoder(Verdict)
_COMPARISON: Final = msgspec.json.Decoder(Comparison)

Line = Verdict | Comparison


class JournalError(Exception):
    """A journal that cannot be read or written; the text says where and why."""


class Journal:
    """Writes lines to a folder, in a thread. The files together have at most ``size`` bytes, and the last batch."""

    def __init__(self, folder: Path, size: int) -> None:
        """Raises JournalError if the folder cannot be made."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._number = max((_number(file) for file in files(folder)), default=0)
        except OSError as error:
            raise JournalError(f"{folder}: {error.strerror}") from error
        self._folder: Final = folder
        self._each: Final = max(size // _FILES, 1)
        self._waiting: list[Line] = []
        #: Lines that could not be written.
        self.lost = 0

    def put(self, line: Line) -> None:
        """Adds a line to the next write."""
        self._waiting.append(line)

    async def run(self) -> None:
        """Writes until cancelled."""
        while True:
            await asyncio.sleep(_PAUSE)
            await self.write()

    async def write(self) -> None:
        """Writes what has been put."""
        batch, self._waiting = self._waiting, []
        if not batch:
            return
        text = b"".join(msgspec.json.encode(line) + b"\n" for line in batch)
        try:
            await asyncio.to_thread(self._append, text)
        except OSError as error:
            if not self.lost:
                log.error("Cannot write the journal in %s: %s", self._folder, error.strerror)
            self.lost += len(batch)

    def _append(self, text: bytes) -> None:
        file = self._folder / f"verdicts-{self._number:08}.jsonl"
        if not self._number or (file.exists() and file.stat().st_size + len(text) > self._each):
            self._number += 1
            file = self._folder / f"verdicts-{self._number:08}.jsonl"
        with file.open("ab") as out:
            out.write(text)
        for old in files(self._folder)[:-_FILES]:
            old.unlink(missing_ok=True)


def files(folder: Path) -> list[Path]:
    """The files of a journal, oldest first."""
    return sorted(folder.glob(_PATTERN))


def _number(file: Path) -> int:
    digits = file.stem.partition("-")[2]
    return int(digits) if digits.isdigit() else 0


def read(folder: Path) -> Iterator[Line]:
    """The verdicts and comparisons of a journal, oldest first. Lines that are not whole are left out. Raises JournalError."""
    if not folder.is_dir():
        raise JournalError(f"{folder} is no folder with a journal")
    for file in files(folder):
        try:
            with file.open("rb") as lines:
                for line in lines:
                    decoded = _decoded(line)
                    if decoded is not None:
                        yield decoded
        except FileNotFoundError:  # deleted meanwhile
            continue
        except OSError as error:
            raise JournalError(f"{file}: {error.strerror}") from error


def _decoded(line: bytes) -> Line | None:
    """A verdict or a comparison; None if it is neither."""
    for decoder in (_VERDICT, _COMPARISON):
        try:
            return decoder.decode(line)
        except msgspec.DecodeError:
            continue
    return None


def as_json(value: Any) -> str:
    """JSON for people: indented."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()
