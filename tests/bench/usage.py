"""What a process and its children have used, from /proc."""

from pathlib import Path
from typing import NamedTuple

import psutil


class Usage(NamedTuple):
    """CPU seconds since the start, and the sum of the most memory that each process ever had, bytes."""

    cpu: float
    peak_memory: int

    def __add__(self, other: object) -> "Usage":
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(self.cpu + other.cpu, self.peak_memory + other.peak_memory)


def usage(pid: int) -> Usage:
    """That of a process and all below it; nothing for one that has ended."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return Usage(0.0, 0)
    total = Usage(0.0, 0)
    for member in family:
        total += _own(member)
    return total


def _own(process: psutil.Process) -> Usage:
    try:
        times = process.cpu_times()
        peak = peak_memory(Path(f"/proc/{process.pid}/status").read_text())
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return Usage(0.0, 0)
    ended_children = times.children_user + times.children_system
    return Usage(times.user + times.system + ended_children, peak)


def peak_memory(status: str) -> int:
    """VmHWM in the text of /proc/PID/status, bytes; 0 for a process without memory (a zombie)."""
    for line in status.splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0
