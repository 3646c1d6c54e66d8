"""RFC 3339 timestamps as Kubernetes writes them, to and from seconds since the epoch."""

import datetime as dt
import functools


def format_time(seconds: float) -> str:
    """A metav1.Time: UTC in whole seconds, truncated.

    >>> format_time(1_700_000_000.9)
    '2023-11-14T22:13:20Z'
    """
    return f"{_date_and_time(int(seconds))}Z"


def format_micro_time(seconds: float) -> str:
    """A metav1.MicroTime: UTC in microseconds.

    >>> format_micro_time(1_700_000_000.25)
    '2023-11-14T22:13:20.250000Z'
    """
    second, micro = divmod(round(seconds * 1_000_000), 1_000_000)
    return f"{_date_and_time(second)}.{micro:06d}Z"


@functools.lru_cache(maxsize=1024)
def _date_and_time(second: int) -> str:
    return dt.datetime.fromtimestamp(second, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S")


def parse_time(text: str) -> float:
    """Seconds since the epoch. A timestamp without an offset is in UTC. Raises ValueError.

    >>> parse_time("2023-11-14T22:13:20Z")
    1700000000.0
    """
    moment = dt.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
