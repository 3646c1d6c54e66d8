"""Names as Kubernetes' controllers make them, but the same ones in every run."""

import hashlib
from typing import Any, Final

import msgspec

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_HASH_LENGTH: Final = 10
_SUFFIXES: Final = len(_LETTERS) ** _SUFFIX_LENGTH
#: Shares no factor with the number of suffixes, so that numbers next to each other get suffixes that look unrelated.
_STRIDE: Final = 6_180_341
_LONGEST_PREFIX: Final = 58


def _spelled(number: int, length: int) -> str:
    letters = []
    for _ in range(length):
        number, index = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[index])
    return "".join(letters)


def _digest(text: bytes) -> int:
    return int.from_bytes(hashlib.sha256(text).digest())


def pod_name(prefix: str, number: int) -> str:
    """The name of an owner's pod: the prefix and five letters, other ones for each number below 14 million.

    >>> pod_name("web-", 0)
    'web-dhvkz'
    """
    first = _digest(prefix.encode())
    return prefix[:_LONGEST_PREFIX] + _spelled(
        (first + number * _STRIDE) % _SUFFIXES, _SUFFIX_LENGTH
    )


def template_hash(template: Any) -> str:
    """Tells pod templates apart, as the label pod-template-hash does; not the value that Kubernetes would compute."""
    text = msgspec.json.encode(template, order="sorted")
    return _spelled(_digest(text), _HASH_LENGTH)
