"""Amounts of resources for people."""

from typing import Final

from app.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY

_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_STEP: Final = 1024


def shown_amount(resource: str, amount: int) -> str:
    """An amount in the scheduler's units, short.

    >>> shown_amount("cpu", 2500), shown_amount("memory", 3 * 2**29), shown_amount("example.com/gpu", 4)
    ('2.5', '1.5Gi', '4')
    """
    if resource == CPU:
        return f"{amount / 1000:.3f}".rstrip("0").rstrip(".")
    if resource in {MEMORY, EPHEMERAL_STORAGE} or resource.startswith("hugepages-"):
        return _shown_bytes(amount)
    return str(amount)


def _shown_bytes(amount: int) -> str:
    value, step = float(amount), 0
    while abs(value) >= _STEP and step < len(_BINARY) - 1:
        value, step = value / _STEP, step + 1
    return f"{value:.1f}".removesuffix(".0") + _BINARY[step]
