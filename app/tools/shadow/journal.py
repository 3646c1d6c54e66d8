"""The journal of a shadow: verdicts as JSON lines in files of limited size, the oldest of which are deleted."""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from app.tools.shadow.verdict import Verdict

log = logging.getLogger(__name__)

#: The number of files among which the size is divided.
_FILES: Final = 8
_PATTERN: Final = "verdicts-*.jsonl"
#: Seconds between two writes.
_PAUSE: Final = 0.5
#: Lines that wait to be written; further ones are lost.
_MAX_WAITING: Final = 50_000
_VERDICT: Final = msgspec.json.Decoder(Verdict)


class JournalError(Exception):
    """A journal that cannot be read or written; the text says where and why."""


class Journal:
    """Writes lines to a folder, in a thread. The files together have at most ``size`` bytes, or one line if it is
    longer."""

    def __init__(self, folder: Path, size: int) -> None:
        """Raises JournalError if the folder cannot be made."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._number = max((_number(file) for file in files(folder)), default=0)
        except OSError as error:
            raise JournalError(f"{folder}: {error.strerror}") from error
        self._folder: Final = folder
        self._size: Final = size
        self._waiting: list[Verdict] = []
        #: Lines that could not be written.
        self.lost = 0

    def put(self, line: Verdict) -> None:
        """Adds a line to the next write; it is lost if the folder is too slow."""
        if len(self._waiting) < _MAX_WAITING:
            self._waiting.append(line)
        else:
            self._lose(1, "it is too slow")

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
        try:
            await asyncio.to_thread(self._append, batch)
        except OSError as error:
            self._lose(len(batch), error.strerror or str(error))

    def _lose(self, lines: int, why: str) -> None:
        if not self.lost:
            log.error("Cannot write the journal in %s: %s", self._folder, why)
        self.lost += lines

    def _append(self, lines: Sequence[Verdict]) -> None:
        number, each = max(self._number, 1), self._size // _FILES
        parts: dict[int, list[bytes]] = {}
        size = self._bytes_of(number)
        for line in lines:
            text = msgspec.json.encode(line) + b"\n"
            if size and size + len(text) > each:
                number, size = number + 1, 0
            parts.setdefault(number, []).append(text)
            size += len(text)
        for self._number, texts in parts.items():
            self._make_room(sum(map(len, texts)))
            with self._file(self._number).open("ab") as out:
                out.writelines(texts)

    def _make_room(self, more: int) -> None:
        """Deletes the oldest files, which an earlier run may have made larger."""
        sizes = {file: file.stat().st_size for file in files(self._folder)}
        excess = sum(sizes.values()) + more - self._size
        for file, size in sizes.items():
            if excess <= 0:
                return
            file.unlink(missing_ok=True)
            excess -= size

    def _file(self, number: int) -> Path:
        return self._folder / f"verdicts-{number:08}.jsonl"

    def _bytes_of(self, number: int) -> int:
        file = self._file(number)
        return file.stat().st_size if file.exists() else 0


def files(folder: Path) -> list[Path]:
    """The files of a journal, oldest first."""
    return sorted(folder.glob(_PATTERN))


def _number(file: Path) -> int:
    digits = file.stem.partition("-")[2]
    return int(digits) if digits.isdigit() else 0


def read(folder: Path) -> Iterator[Verdict]:
    """The verdicts of a journal, oldest first. Lines that are not whole are left out. Raises JournalError."""
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


def _decoded(line: bytes) -> Verdict | None:
    """A verdict; None if the line is none."""
    try:
        return _VERDICT.decode(line)
    except msgspec.DecodeError:
        return None


def as_json(value: Any) -> str:
    """JSON for people: indented."""
    return msgspec.json.format(msgspec.json.encode(value)).decode()
