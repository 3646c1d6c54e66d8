"""Kubernetes quantities as exact integers of nano-units.

A quantity is parsed once into an ``int`` of 10^-9 units; sums stay exact and are rounded only when a pod's or a
node's total is turned into scheduler units (spec: plugins.md 3.4 and 3.5).
"""

import functools
import re

NANO = 10**9
MICRO = 10**6

_PATTERN = re.compile(r"^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_EXPONENT = re.compile(r"^[eE]([+-]?[0-9]+)$")
_MAX = (2**63 - 1) * NANO


class QuantityError(ValueError):
    """A text that is no quantity; the message is Kubernetes' own."""


def _ceil_away(number: int, divisor: int) -> int:
    """Divides, rounding away from zero."""
    quotient = -(-abs(number) // divisor)
    return quotient if number >= 0 else -quotient


def _number(digits: str) -> tuple[int, int]:
    """Splits ``12.5`` into (125, 1): an integer and the number of decimal places."""
    whole, _, fraction = digits.lstrip("+-").partition(".")
    if digits.count(".") > 1 or not (whole or fraction) or "." in fraction:
        raise QuantityError("unable to parse numeric part of quantity")
    value = int((whole + fraction) or "0")
    return (-value if digits.startswith("-") else value), len(fraction)


@functools.lru_cache(maxsize=65536)
def parse(text: str | float) -> int:
    """Returns the quantity in nano-units (10^-9), finer fractions rounded away from zero.

    Numbers, as JSON allows them in place of strings, are read by their decimal text. Binary suffixes are capped at
    2^63-1 whole units as in Kubernetes. Raises QuantityError.
    """
    text = repr(text) if isinstance(text, float) else str(text).strip()
    match = _PATTERN.match(text)
    if match is None:
        raise QuantityError(f"quantities must match the regular expression '{_PATTERN.pattern}'")
    value, places = _number(match[1])
    suffix = match[2]
    if suffix in _BINARY:
        nanos = _ceil_away((value << _BINARY[suffix]) * NANO, 10**places)
        return max(-_MAX, min(_MAX, nanos))
    if suffix in _DECIMAL:
        exponent = _DECIMAL[suffix]
    elif exponent_match := _EXPONENT.match(suffix):
        exponent = int(exponent_match[1])
    else:
        raise QuantityError("unable to parse quantity's suffix")
    power = exponent + 9 - places
    return value * 10**power if power >= 0 else _ceil_away(value, 10**-power)


def canonical(text: str | float) -> str:
    """The quantity as API servers write it back: the largest suffix of its own kind that leaves no fraction.

    Raises QuantityError.
    """
    nanos = parse(text)
    match = _PATTERN.match(str(text).strip())
    suffix = match[2] if match is not None else ""
    if suffix in _BINARY:
        return binary(nanos)
    return _scaled(nanos, exponent=_EXPONENT.match(suffix) is not None)


def binary(nanos: int) -> str:
    """Nano-units with a binary suffix where they are whole units and 1024 of them or more, else with a decimal one."""
    units, fraction = divmod(nanos, NANO)
    if fraction or abs(units) < 1024:
        return _scaled(nanos, exponent=False)
    suffix = ""
    for name in _BINARY:
        if units % 1024:
            break
        units //= 1024
        suffix = name
    return f"{units}{suffix}"


def _scaled(nanos: int, *, exponent: bool) -> str:
    """With a decimal suffix, or with a decimal exponent: powers of a thousand."""
    if nanos == 0:
        return "0"
    number, suffix = nanos, "n"
    for name in ("u", "m", "", "k", "M", "G", "T", "P", "E"):
        if number % 1000:
            break
        number //= 1000
        suffix = name
    if exponent:
        suffix = f"e{_DECIMAL[suffix]}" if suffix else ""
    return f"{number}{suffix}"


def whole(nanos: int) -> int:
    """Whole units, rounded away from zero (Go's ``Value()``)."""
    return _ceil_away(nanos, NANO)


def milli(nanos: int) -> int:
    """Thousandths, rounded away from zero (Go's ``MilliValue()``)."""
    return _ceil_away(nanos, MICRO)
