"""Reads and raises this process's limits of memory and files, and returns free memory to the system."""

import asyncio
import ctypes
import os
import resource
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from app.runtime.clock import thread_seconds

#: Largest limit of file descriptors that is set; more are never needed.
_ENOUGH: Final = 65_536
#: A limit above this means no limit in cgroups version 1.
_UNLIMITED: Final = 1 << 60
#: Seconds between two returns of free memory to the system, at least; and their share of one processor at most.
_TRIM_SECONDS: Final = 15.0
_TRIM_SHARE: Final = 1 / 1000


class Limits(msgspec.Struct, frozen=True):
    """``memory`` in bytes, by default that of the machine; ``descriptors``: open at the same time."""

    memory: int
    descriptors: int


def take_limits() -> Limits:
    """Raises the soft limit of file descriptors to the hard one, as Go's runtime does, and returns the limits."""
    return Limits(memory_limit(), _raised_descriptors())


def memory_limit(root: Path = Path("/")) -> int:
    """The smallest of the machine's memory, control group limits and ulimits, in bytes."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    ulimits = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    set_ones = [limit for limit in ulimits if limit != resource.RLIM_INFINITY]
    return min([machine, *set_ones, *_cgroup_limits(root)])


def resident_memory() -> int:
    """Bytes of resident memory of the process; 0 if the system does not report it."""
    fields = _read(Path("/proc/self/statm")).split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else 0


async def return_free_memory() -> None:
    """Every 15 s or less often, until cancelled, returns the free pages of the C heap to the system, where the C
    library can (glibc).

    Objects that stay lie between others that have gone: without this the heap still grows by a third after a hundred
    thousand pods, though nothing more is kept. One call takes a millisecond, or with much in the heap 2 to 4 ms for
    each 100 MB. A thread does not help: the call locks the heap, and the event loop would wait for that lock instead.
    So a call is the rarer the more processor time it takes; what the thread waits for a processor does not count.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    wait = _TRIM_SECONDS
    while trim is not None:
        await asyncio.sleep(wait)
        before = thread_seconds()
        trim(0)
        wait = max(_TRIM_SECONDS, (thread_seconds() - before) / _TRIM_SHARE)
    await asyncio.Event().wait()


def _cgroup_limits(root: Path) -> Iterator[int]:
    """The memory limits of this process's control groups and their parents, of both versions."""
    mounted = root / "sys/fs/cgroup"
    for line in _read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controllers in {"", "memory"}:
            base, name = (
                (mounted / "memory", "memory.limit_in_bytes")
                if controllers
                else (mounted, "memory.max")
            )
            group = PurePosixPath(path.lstrip("/"))
            for each in (group, *group.parents):
                text = _read(base / each / name).strip()
                if text.isdecimal() and int(text) < _UNLIMITED:
                    yield int(text)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _raised_descriptors() -> int:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return _ENOUGH if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        return soft
    return most
