"""The console for tables on standard output; apart from ``process``, because it imports rich."""

import os
import sys
from typing import IO, Any, Final

from rich.console import Console

#: Width for pipes and files, so that no line is folded.
_UNLIMITED: Final = 100_000


class _Trimmed:
    """A text file in which no line ends with spaces; tables are padded with them."""

    def __init__(self, file: IO[str]) -> None:
        self._file: Final = file
        self._line = ""

    def write(self, text: str) -> int:
        """Writes the complete lines."""
        *complete, self._line = (self._line + text).split("\n")
        self._file.writelines(f"{line.rstrip(' ')}\n" for line in complete)
        return len(text)

    def flush(self) -> None:
        """Writes the incomplete line, if any."""
        if self._line.strip():
            self._file.write(self._line)
            self._line = ""
        self._file.flush()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return False


def console() -> Console:
    """A console for standard output, as wide as the terminal or COLUMNS; otherwise lines are not folded."""
    if sys.stdout.isatty():
        return Console(highlight=False, markup=False, emoji=False)
    width = None if os.environ.get("COLUMNS") else _UNLIMITED
    file: Any = _Trimmed(sys.stdout)
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)
