"""Standard output for tables, apart from what the scheduler itself imports."""

import os
import sys
from typing import IO, Any, Final

from rich.console import Console

#: Columns where nobody has said how many there are: in pipes and files nothing is folded.
_UNLIMITED: Final = 100_000


class _Trimmed:
    """A text file in which no line ends with spaces; tables are padded with them."""

    def __init__(self, file: IO[str]) -> None:
        self._file: Final = file
        self._line = ""

    def write(self, text: str) -> int:
        """Writes the lines that are complete."""
        *complete, self._line = (self._line + text).split("\n")
        self._file.writelines(f"{line.rstrip(' ')}\n" for line in complete)
        return len(text)

    def flush(self) -> None:
        """Writes what there is."""
        if self._line.strip():
            self._file.write(self._line)
            self._line = ""
        self._file.flush()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return False


def console() -> Console:
    """For standard output: as wide as the terminal, or as COLUMNS says; lines are folded nowhere else."""
    if sys.stdout.isatty():
        return Console(highlight=False, markup=False, emoji=False)
    width = None if os.environ.get("COLUMNS") else _UNLIMITED
    file: Any = _Trimmed(sys.stdout)
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)
