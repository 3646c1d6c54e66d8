"""Installed distributions, as importlib.metadata knows them.

To import and to ask it takes a twentieth of all instructions of a start, so it is only asked if there may be entry
points.
"""

import os
import stat
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_VERSION: Final = "Version: "


def entry_points(*, group: str) -> Iterable["EntryPoint"]:
    """As importlib.metadata.entry_points."""
    if not _foreign() and not any(
        group.encode() in _read(info, "entry_points.txt") for info in _infos()
    ):
        return ()
    from importlib import metadata  # noqa: PLC0415 - see above

    return metadata.entry_points(group=group)


def version(distribution: str) -> str:
    """As importlib.metadata.version."""
    start = distribution.replace("-", "_") + "-"
    for info in () if _foreign() else _infos():
        if os.path.basename(info).startswith(start):
            for line in _read(info, "METADATA").decode().splitlines():
                if line.startswith(_VERSION):
                    return line.removeprefix(_VERSION)
    from importlib import metadata  # noqa: PLC0415 - see above

    return metadata.version(distribution)


def _foreign() -> bool:
    """Whether distributions may be elsewhere than in folders: in archives, in eggs, or where another finder looks."""
    finders = [each for each in sys.meta_path if hasattr(each, "find_distributions")]
    return len(finders) > 1 or any(map(_is_foreign, sys.path))


def _is_foreign(path: str) -> bool:
    try:
        return path.endswith(".egg") or not stat.S_ISDIR(os.stat(path or ".").st_mode)
    except OSError:
        return False


def _infos() -> Iterator[str]:
    """The folders about distributions, in the order of importlib.metadata."""
    for path in sys.path:
        try:
            names = os.listdir(path or ".")
        except OSError:
            continue
        for name in names:
            if name.lower().endswith((".dist-info", ".egg-info")):
                yield os.path.join(path, name)


def _read(info: str, name: str) -> bytes:
    """A file about a distribution; empty if there is none."""
    try:
        with open(os.path.join(info, name), "rb", buffering=0) as file:
            return file.read()
    except OSError:
        return b""
