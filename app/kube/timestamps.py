"""Timestamps as Kubernetes writes them, to and from seconds since the epoch."""

import datetime as dt


def format_time(seconds: float) -> str:
    """metav1.Time: whole seconds.

    >>> format_time(1_700_000_000.9)
    '2023-11-14T22:13:20Z'
    """
    return dt.datetime.fromtimestamp(int(seconds), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def format_micro_time(seconds: float) -> str:
    """metav1.MicroTime: microseconds.

    >>> format_micro_time(1_700_000_000.25)
    '2023-11-14T22:13:20.250000Z'
    """
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse_time(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp; without an offset it is UTC. Raises ValueError.

    >>> parse_time("2023-11-14T22:13:20Z")
    1700000000.0
    """
    moment = dt.datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()
