"""Splits an expression into tokens."""

import re
from typing import NamedTuple

from app.cel.issues import SyntaxIssue


class Token(NamedTuple):
    """``kind`` is a group of the pattern below, or the text itself for operators and keywords."""

    kind: str
    text: str
    offset: int


_ESCAPE = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_STRING = "|".join(
    (
        r'[rR]"""(?s:.*?)"""',
        r"[rR]'''(?s:.*?)'''",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    )
)
_TOKEN = re.compile(
    "|".join(
        (
            r"(?P<blank>[\t \r\n\f]+|//[^\n]*)",
            r"(?P<float>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+"
            r"|\.[0-9]+(?:[eE][+-]?[0-9]+)?)",
            r"(?P<uint>(?:0x[0-9a-fA-F]+|[0-9]+)[uU])",
            r"(?P<int>0x[0-9a-fA-F]+|[0-9]+)",
            rf"(?P<bytes>[bB](?:{_STRING}))",
            rf"(?P<string>{_STRING})",
            r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)",
            r"(?P<operator>==|!=|<=|>=|&&|\|\||[-\[\]{}().,!?:+*/%<>])",
        )
    )
)
_KEYWORDS = frozenset({"in", "true", "false", "null"})


def tokens(source: str) -> list[Token]:
    """The tokens of an expression and one of the kind ``end``. Raises SyntaxIssue."""
    found = []
    offset = 0
    while offset < len(source):
        match = _TOKEN.match(source, offset)
        if match is None:
            raise SyntaxIssue(
                offset, f"Syntax error: token recognition error at: '{source[offset]}'"
            )
        text = match[0]
        kind = match.lastgroup or ""
        if kind == "operator" or text in _KEYWORDS:
            kind = text
        if kind != "blank":
            found.append(Token(kind, text, offset))
        offset = match.end()
    found.append(Token("end", "<EOF>", offset))
    return found


_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
_ESCAPED = re.compile(_ESCAPE)


def string(token: Token) -> str:
    """What a string token stands for."""
    text, raw = _unquoted(token.text)
    return text if raw else _ESCAPED.sub(lambda it: _character(it[0], token.offset), text)


def _unquoted(text: str) -> tuple[str, bool]:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    raw = text[0] in "rR"
    text = text[raw:]
    width = 3 if len(text) >= 6 and text[:3] in {'"""', "'''"} else 1
    return text[width:-width], raw


def _character(escape: str, offset: int) -> str:
    kind = escape[1]
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    code = int(escape[1:], 8) if kind.isdecimal() else int(escape[2:].rjust(8, "0"), base=16)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise SyntaxIssue(offset, "invalid unicode code point")
    return chr(code)
