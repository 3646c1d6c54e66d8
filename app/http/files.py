"""Detects changes of files at run time: certificates, keys and tokens in mounted secrets."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from app.runtime.shortages import SHORTAGES

#: Seconds between two checks of the same files.
LOOK_INTERVAL: Final = 10.0

_Stamp = tuple[int, int, int] | None


class FileWatch:
    """Detects that one of several files was replaced or written."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths: Final = tuple(paths)
        self._stamps: tuple[_Stamp, ...] = self._look()
        self._next_look: float | None = None

    def changed(self, now: float) -> bool:
        """Whether the files have changed since this last returned True; checks every LOOK_INTERVAL seconds."""
        if not self._paths or (self._next_look is not None and now < self._next_look):
            return False
        self._next_look = now + LOOK_INTERVAL
        stamps = self._look()
        changed = stamps != self._stamps
        self._stamps = stamps
        return changed

    def failed(self, error: Exception, now: float) -> None:
        """The changed files could not be read. If file descriptors ran out, they count as changed at the next check."""
        if SHORTAGES.noted(error, "read files", now):
            self._stamps = ()

    def _look(self) -> tuple[_Stamp, ...]:
        return tuple(map(_stamp, self._paths))


def _stamp(path: str) -> _Stamp:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


class TokenFile:
    """A bearer token in a file; the last one is kept if the file can no longer be read."""

    def __init__(self, path: str) -> None:
        """Raises ValueError for a file that cannot be read or is empty."""
        self._path: Final = Path(path)
        self._watch: Final = FileWatch([path])
        self._token = self._read()
        #: Why the newest content is not in use; empty if it is.
        self.problem = ""

    def __repr__(self) -> str:
        return f"TokenFile({str(self._path)!r})"

    def token(self, now: float) -> str:
        """The current token; ``now`` in the loop's time."""
        if self._watch.changed(now):
            try:
                self._token = self._read()
                self.problem = ""
            except ValueError as err:
                self._watch.failed(err, now)
                self.problem = str(err)
        return self._token

    def _read(self) -> str:
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as err:
            raise ValueError(f"bearer token file {self._path}: {err}") from err
        if not token or not token.isprintable():
            raise ValueError(f"bearer token file {self._path}: holds no token")
        return token
