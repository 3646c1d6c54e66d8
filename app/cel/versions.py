"""Semantic versions."""

import re
from typing import Final

from app.cel.basics import UINT_MAX, quote
from app.cel.errors import EvaluationError


class Semver:
    """A semantic version (semver.org 2.0.0), without its build metadata, which nothing compares."""

    __slots__ = ("major", "minor", "patch", "prerelease")

    def __init__(self, text: str) -> None:
        """Raises EvaluationError."""
        if not text:
            raise EvaluationError("Version string empty")
        parts = text.split(".", 2)
        if len(parts) != 3:
            raise EvaluationError("No Major.Minor.Patch elements found")
        self.major: Final = _version_number("major", parts[0])
        self.minor: Final = _version_number("minor", parts[1])
        rest, _, build = parts[2].partition("+")
        patch, dash, prerelease = rest.partition("-")
        self.patch: Final = _version_number("patch", patch)
        self.prerelease: Final = (
            tuple(map(_prerelease, prerelease.split("."))) if dash else ()
        )  # numbers before words
        for it in build.split(".") if "+" in parts[2] else ():
            if not it:
                raise EvaluationError("Build meta data is empty")
            if not _ALPHANUM.fullmatch(it):
                raise EvaluationError(f"Invalid character(s) found in build meta data {quote(it)}")

    @classmethod
    def normalized(cls, text: str) -> "Semver":
        """Reads ``v1``, ``1.2`` and ``01.2.3``, too."""
        parts = text.removeprefix("v").split(".", 2)
        for place, part in enumerate(parts):
            if len(part) > 1:
                stripped = part.lstrip("0")
                parts[place] = stripped if stripped[:1].isdecimal() else f"0{stripped}"
        if len(parts) < 3:
            if "+" in parts[-1] or "-" in parts[-1]:
                raise EvaluationError("short version cannot contain PreRelease/Build meta data")
            parts += ["0"] * (3 - len(parts))
        return cls(".".join(parts))

    def compare(self, other: "Semver") -> int:
        """-1, 0 or 1: a prerelease is before its release."""
        mine = (self.major, self.minor, self.patch, not self.prerelease, self.prerelease)
        its = (other.major, other.minor, other.patch, not other.prerelease, other.prerelease)
        return (mine > its) - (mine < its)


_ALPHANUM = re.compile(r"[0-9A-Za-z-]*")
_DIGITS = re.compile(r"[0-9]*")


def _version_number(name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in {name} number {quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise EvaluationError(
            f"{name.capitalize()} number must not contain leading zeroes {quote(text)}"
        )
    return _parse_uint(text)


def _prerelease(text: str) -> tuple[bool, int, str]:
    if not text:
        raise EvaluationError("Prerelease is empty")
    if _DIGITS.fullmatch(text):
        if len(text) > 1 and text[0] == "0":
            raise EvaluationError(
                f"Numeric PreRelease version must not contain leading zeroes {quote(text)}"
            )
        return False, _parse_uint(text), ""
    if not _ALPHANUM.fullmatch(text):
        raise EvaluationError(f"Invalid character(s) found in prerelease {quote(text)}")
    return True, 0, text


def _parse_uint(text: str) -> int:
    if not text:
        raise EvaluationError('strconv.ParseUint: parsing "": invalid syntax')
    number = int(text) if len(text) <= 20 else UINT_MAX + 1
    if number > UINT_MAX:
        raise EvaluationError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return number
