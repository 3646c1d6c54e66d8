"""Kubernetes quantities as exact integers of nano-units.

A quantity is parsed once into an ``int`` of 10^-9 units; sums stay exact and are rounded only when a pod's or a
node's total is turned into scheduler units (docs/spec/resources.md#quantities).
"""

import functools
import re
from typing import Final

NANO = 10**9
MICRO = 10**6

#: Powers of ten and of two by suffix.
DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}

#: Amounts are clamped to plus or minus this, in nano-units; far beyond int64.
LARGEST: Final = 10**40

_WRONG_FORMAT: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
# Possessive quantifiers: a text of any length is matched in one pass.
_PATTERN: Final = re.compile(r"([+-]?)([0-9.]++)([eEinumkKMGTP]*+[-+]?[0-9]*+)")
_LARGEST_BINARY: Final = (2**63 - 1) * NANO
_LARGEST_DIGITS: Final = 41
#: 2^60 has 19 digits: what is this small before it is multiplied is less than a nano-unit after it.
_SMALLEST_DIGITS: Final = -20
#: The number of significant digits that are kept; the rest is rounded up.
_MAX_DIGITS: Final = 100
#: An exponent with no more digits than this is an int64.
_INT64_DIGITS: Final = 18
#: Results for longer texts are not cached.
_MAX_REMEMBERED: Final = 64


class QuantityError(ValueError):
    """Text that is not a quantity; the message is Kubernetes'."""


def _ceil_away(number: int, divisor: int) -> int:
    """Divides, rounding away from zero."""
    quotient = -(-abs(number) // divisor)
    return quotient if number >= 0 else -quotient


def decimal_exponent(suffix: str) -> int | None:
    """The power of ten of a suffix such as ``k``, ``e3`` or ``E-3``; None for other text.

    Time is linear in the length of the suffix. The power has at most 18 digits.
    """
    known = DECIMAL.get(suffix)
    if known is not None:
        return known
    digits = suffix[1:].lstrip("+-")
    if suffix[0] not in "eE" or not digits.isdecimal() or not digits.isascii():
        return None
    power = digits.lstrip("0") or "0"
    if len(power) > _INT64_DIGITS or len(suffix) - len(digits) > 2:
        return None
    return -int(power) if suffix[1] == "-" else int(power)


def cut_digits(whole: str, fraction: str, most: int) -> tuple[int, int, int]:
    """``whole.fraction`` as (number, places, digits): ``number`` times 10^-``places``, with that many digits.

    Of more than ``most`` significant digits the rest is rounded up; ``places`` is negative where it lay before the
    point.
    """
    digits = (whole + fraction).lstrip("0")
    kept, rest = digits[:most], digits[most:]
    number = int(kept or "0") + bool(rest.strip("0"))
    return number, len(fraction) - len(rest), len(kept)


def parse(text: str | float) -> int:
    """Returns the quantity in nano-units (10^-9), finer fractions rounded away from zero.

    Numbers, as JSON allows them in place of strings, are read by their decimal text. Binary suffixes are capped at
    2^63-1 whole units as in Kubernetes, all others at LARGEST. Takes time linear in the length of the text, whatever
    the amount. Raises QuantityError.
    """
    if type(text) is str and len(text) > _MAX_REMEMBERED:
        return _parse(text)
    return _remembered(text)


def _parse(text: str | float) -> int:
    text = repr(text) if isinstance(text, float) else str(text).strip()
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise QuantityError(_WRONG_FORMAT)
    nanos = _nanos(match[2], match[3])
    return -nanos if match[1] == "-" else nanos


def _nanos(digits: str, suffix: str) -> int:
    whole, _, fraction = digits.partition(".")
    if "." in fraction or not (whole or fraction):
        raise QuantityError("unable to parse numeric part of quantity")
    shift = BINARY.get(suffix)
    exponent, largest = 0, _LARGEST_BINARY
    if shift is None:
        power_of_ten = decimal_exponent(suffix)
        if power_of_ten is None:
            raise QuantityError("unable to parse quantity's suffix")
        shift, exponent, largest = 0, power_of_ten, LARGEST
    number, places, size = cut_digits(whole, fraction, _MAX_DIGITS)
    if not number:
        return 0
    power = exponent + 9 - places
    if size + power > _LARGEST_DIGITS:
        return largest
    if size + power < _SMALLEST_DIGITS:
        return 1
    number <<= shift
    nanos = number * 10**power if power >= 0 else _ceil_away(number, 10**-power)
    return min(nanos, largest)


_remembered: Final = functools.lru_cache(maxsize=65536)(_parse)


def canonical(text: str | float) -> str:
    """The quantity in canonical form: the largest suffix of its format that leaves no fraction.

    Raises QuantityError.
    """
    nanos = parse(text)
    match = _PATTERN.fullmatch(str(text).strip())
    suffix = match[3] if match is not None else ""
    if suffix in BINARY:
        return binary(nanos)
    return _scaled(nanos, exponent=suffix not in DECIMAL)


def binary(nanos: int) -> str:
    """Nano-units as text, with a binary suffix for 1024 whole units or more, else with a decimal suffix."""
    units, fraction = divmod(nanos, NANO)
    if fraction or abs(units) < 1024:
        return _scaled(nanos, exponent=False)
    suffix = ""
    for name in BINARY:
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
        suffix = f"e{DECIMAL[suffix]}" if suffix else ""
    return f"{number}{suffix}"


def whole(nanos: int) -> int:
    """Whole units, rounded away from zero (Go's ``Value()``)."""
    return _ceil_away(nanos, NANO)


def milli(nanos: int) -> int:
    """Thousandths, rounded away from zero (Go's ``MilliValue()``)."""
    return _ceil_away(nanos, MICRO)
