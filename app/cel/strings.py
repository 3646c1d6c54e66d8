"""Functions of strings beyond the language's own: cel-go's extension in version 2, and Kubernetes' regular expressions."""

from typing import Any

from app.cel import regexes
from app.cel.costs import MAX_LENGTH
from app.cel.declarations import Overload, declare
from app.cel.errors import CostLimitExceeded, EvaluationError

_BLANKS = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}


def _out_of_range(index: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    if not part:
        return start
    if start < 0:
        raise _out_of_range(start)
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    found = text.count(old) if old else len(text) + 1
    found = found if count < 0 else min(found, count)
    if len(text) + found * len(new) > MAX_LENGTH:
        raise CostLimitExceeded
    return text.replace(old, new, found)


def _split(text: str, separator: str, count: int = -1) -> tuple[str, ...]:
    if count == 0:
        return ()
    if separator:
        return tuple(text.split(separator, count - 1 if count > 0 else -1))
    if 0 < count < len(text):
        return (*text[: count - 1], text[count - 1 :])
    return tuple(text)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    for index in (start, end):
        if index is not None and not 0 <= index <= len(text):
            raise _out_of_range(index)
    return text[start:end]


def _join(parts: Any, separator: str = "") -> str:
    for it in parts:
        if type(it) is not str:
            raise EvaluationError(f"join: invalid input: {it}")
    if sum(map(len, parts)) + len(separator) * len(parts) > MAX_LENGTH:
        raise CostLimitExceeded
    return separator.join(parts)


OVERLOADS: list[Overload] = declare(
    {
        "string.charAt(int): string": _char_at,
        "string.indexOf(string): int": _index_of,
        "string.indexOf(string, int): int": _index_of,
        "string.lastIndexOf(string): int": _last_index_of,
        "string.lastIndexOf(string, int): int": _last_index_of,
        "string.lowerAscii(): string": lambda it: it.translate(_LOWER),
        "string.upperAscii(): string": lambda it: it.translate(_UPPER),
        "string.replace(string, string): string": _replace,
        "string.replace(string, string, int): string": _replace,
        "string.split(string): list<string>": _split,
        "string.split(string, int): list<string>": _split,
        "string.substring(int): string": _substring,
        "string.substring(int, int): string": _substring,
        "string.trim(): string": lambda it: it.strip(_BLANKS),
        "list<string>.join(): string": _join,
        "list<string>.join(string): string": _join,
        "string.find(string): string": regexes.find,
        "string.findAll(string): list<string>": regexes.find_all,
        "string.findAll(string, int): list<string>": regexes.find_all,
    }
)
