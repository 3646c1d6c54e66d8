"""Amounts as Kubernetes writes them."""

import re
from typing import Final

from app.cel.basics import INT_MAX, INT_MIN
from app.cel.errors import EvaluationError
from app.model.quantity import BINARY, cut_digits, decimal_exponent


class Quantity:
    """An amount: ``unscaled`` times ten to the power of ``scale``.

    ``big`` says that Kubernetes does not hold it as an int64, and so would not call it an integer. ``computed`` is set for sums
    and differences, to which Kubernetes has nothing equal on their left.
    """

    __slots__ = ("big", "computed", "scale", "unscaled")

    def __init__(
        self, unscaled: int, scale: int = 0, *, big: bool = False, computed: bool = False
    ) -> None:
        self.unscaled: Final = unscaled
        self.scale: Final = scale
        self.big: Final = big
        self.computed: Final = computed

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Reads ``1.5Gi``; raises EvaluationError with Kubernetes' own words.

        Time is linear in the length of the text. Digits behind the 1000th are rounded up, and exponents beyond 2000 are cut.
        """
        match = _QUANTITY.fullmatch(text)
        if match is None or not text:
            raise EvaluationError(
                "quantities must match the regular expression "
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            )
        sign, num, denom, suffix = match[1], match[2] or "0", match[3] or "", match[4]
        number, places, _ = cut_digits(num, denom, _MAX_DIGITS)
        number = -number if sign == "-" else number
        if suffix in BINARY:
            return cls._binary(number, len(num), max(0, places), BINARY[suffix])
        exponent = decimal_exponent(suffix)
        if exponent is None:
            raise EvaluationError("unable to parse quantity's suffix")
        scale = max(-_MAX_EXPONENT, min(_MAX_EXPONENT, exponent - places))
        if len(num) + len(denom) <= 18 and scale >= -9:
            return cls(number, scale)
        return cls._rounded(number, scale)

    @classmethod
    def _binary(cls, number: int, digits: int, places: int, exponent: int) -> "Quantity":
        amount = number << exponent
        precision = 15 - digits - int(exponent * 3 / 10) - 1
        if not places and precision >= 0 and abs(amount) <= INT_MAX:
            return cls(amount)
        if abs(amount) > INT_MAX * 10**places:
            return cls(INT_MAX if number > 0 else -INT_MAX, big=True)
        return cls._rounded(amount, -places)

    @classmethod
    def _rounded(cls, number: int, scale: int) -> "Quantity":
        """In units of 10^-9, finer fractions rounded away from zero."""
        if not number:
            return cls(0, big=True)
        power = scale + 9
        if power >= 0:
            return cls(number * 10**power, -9, big=True)
        nanos = -(-abs(number) // 10**-power)
        return cls(nanos if number > 0 else -nanos, -9, big=True)

    def at(self, scale: int) -> int:
        """The amount in finer units."""
        return self.unscaled * int(10 ** (self.scale - scale))

    def compare(self, other: "Quantity") -> int:
        """-1, 0 or 1."""
        scale = min(self.scale, other.scale)
        mine, its = self.at(scale), other.at(scale)
        return (mine > its) - (mine < its)

    def plus(self, other: "Quantity", sign: int = 1) -> "Quantity":
        """The sum, or with -1 the difference."""
        if not (self.big or other.big):
            if not other.unscaled:
                return Quantity(self.unscaled, self.scale, computed=True)
            scale = min(self.scale, other.scale) if self.unscaled else other.scale
            total = (self.at(scale) if self.unscaled else 0) + sign * other.at(scale)
            return Quantity(total, scale, big=not INT_MIN <= total <= INT_MAX, computed=True)
        scale = min(self.scale, other.scale)
        return Quantity(self.at(scale) + sign * other.at(scale), scale, big=True, computed=True)

    def whole(self) -> int | None:
        """The amount as an int64, where Kubernetes can tell that without effort."""
        if self.big or self.scale < 0:
            return None
        amount = self.at(0)
        return amount if INT_MIN <= amount <= INT_MAX else None


_MAX_DIGITS: Final = 1000
_MAX_EXPONENT: Final = 2000
# No part gives back what it has matched: a text of any length is judged in one pass.
_QUANTITY: Final = re.compile(r"([+-]?)0*+([0-9]*+)(?:\.([0-9]*+))?+([eEinumkKMGTP]*+[-+]?[0-9]*+)")
