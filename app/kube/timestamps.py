"""Timestamps as Kubernetes writes them, to and from seconds since the epoch."""

import datetime as dt
import functools


def format_time(seconds: float) -> str:
    """metav1.Time: whole seconds.

    >>> format_time(1_700_000_000.9)
    '2023-11-14T22:13:20Z'
    """
    return f"{_whole(int(seconds))}Z"


def format_micro_time(seconds: float) -> str:
    """metav1.MicroTime: microseconds.

    >>> format_micro_time(1_700_000_000.25)
    '2023-11-14T22:13:20.250000Z'
    """
    second, micro = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_whole(second)}.{micro:06d}Z"


@functools.lru_cache(maxsize=64)
def _whole(second: int) -> str:
    return dt.datetime.fromtimestamp(second, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp; without an offset it is UTC. Raises ValueError.

    >>> parse_time("2023-11-14T22:13:20Z")
    1700000000.0
    """
    moment = dt.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
