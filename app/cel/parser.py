"""Parses expressions into trees, and expands macros (``has``, ``all``, ``map``, ...) on the way."""

import re
from typing import NamedTuple

from app.cel import macros
from app.cel.errors import SyntaxIssue
from app.cel.syntax import Call, Expr, Ident, ListLiteral, Literal, MapLiteral, Message, Select
from app.cel.types import INT_MAX, INT_MIN, UINT_MAX
from app.cel.values import Uint

MAX_DEPTH = 250
"""Kubernetes' bound of nested brackets, of chained operators and of chained members."""
_WORDS = (
    "as break const continue else false for function if import in let loop package namespace null "
    "return true var void while"
)
_RESERVED = frozenset(_WORDS.split())
_OPERATORS = ("||", "&&", "< <= >= > == != in", "+ -", "* / %")
_PRECEDENCE = {it: level for level, line in enumerate(_OPERATORS, 1) for it in line.split()}
_FUNCTION = {"in": "@in"}
_EXPRESSION = (
    "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', "
    "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"
)


def parse(source: str) -> Expr:
    """The tree of an expression. Raises SyntaxIssue."""
    parser = _Parser(_tokens(source))
    tree = parser.expression()
    parser.expect("end")
    return tree


# ---------------------------------------------------------------- tokens


class _Token(NamedTuple):
    """``kind`` is a group of ``_PATTERN``, or the text itself for operators and keywords."""

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
_PATTERN = re.compile(
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


def _tokens(source: str) -> list[_Token]:
    """The tokens of an expression, then one of kind ``end``. Raises SyntaxIssue."""
    found = []
    offset = 0
    while offset < len(source):
        match = _PATTERN.match(source, offset)
        if match is None:
            raise SyntaxIssue(
                offset, f"Syntax error: token recognition error at: '{source[offset]}'"
            )
        text = match[0]
        kind = match.lastgroup or ""
        if kind == "operator" or text in _KEYWORDS:
            kind = text
        if kind != "blank":
            found.append(_Token(kind, text, offset))
        offset = match.end()
    found.append(_Token("end", "<EOF>", offset))
    return found


# ---------------------------------------------------------------- trees


class _Parser:
    __slots__ = ("_at", "_depth", "_tokens")

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    # ------------------------------------------------------------ tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *kinds: str) -> _Token | None:
        token = self._tokens[self._at]
        if token.kind not in kinds:
            return None
        self._at += 1
        return token

    def expect(self, kind: str) -> _Token:
        """Consumes the next token, which must be of this kind. Raises SyntaxIssue."""
        token = self._take(kind)
        if token is None:
            wanted = {"end": "<EOF>", "name": "IDENTIFIER"}.get(kind, f"'{kind}'")
            raise SyntaxIssue(
                self._next.offset,
                f"Syntax error: mismatched input '{self._next.text}' expecting {wanted}",
            )
        return token

    # ------------------------------------------------------------ operators

    def expression(self) -> Expr:
        """``a ? b : c``, or an operation of higher precedence."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep()
        node = self._operation(1)
        mark = self._take("?")
        if mark is not None:
            then = self._operation(1)
            self.expect(":")
            node = Call(mark.offset, "_?_:_", [node, then, self.expression()])
        self._depth -= 1
        return node

    def _operation(self, loosest: int) -> Expr:
        """A chain of operators of precedence ``loosest`` or higher, which group from left to right."""
        node = self._unary()
        count = 0
        while (level := _PRECEDENCE.get(self._next.kind, 0)) >= loosest:
            mark = self.expect(self._next.kind)
            operands = [node, self._operation(level + 1)]
            if mark.kind in {"&&", "||"}:
                mark = self._more_terms(mark, operands, level)
            node = Call(mark.offset, _FUNCTION.get(mark.kind, f"_{mark.kind}_"), operands)
            count += 1
            if count >= MAX_DEPTH:
                raise _too_deep()
        return node

    def _more_terms(self, mark: _Token, operands: list[Expr], level: int) -> _Token:
        """Adds the other terms of ``a || b || c``: one call has them all. Returns the middle operator, whose place
        errors name."""
        marks = [mark]
        while more := self._take(mark.kind):
            marks.append(more)
            operands.append(self._operation(level + 1))
        return marks[len(marks) // 2]

    def _unary(self) -> Expr:
        """``!a`` and ``-a``. Pairs of the same operator cancel out. The sign of a number is part of the literal."""
        first = self._next
        if first.kind not in {"!", "-"}:
            return self._member()
        count = 0
        while self._next.kind == first.kind:
            if (
                first.kind == "-"
                and not count
                and self._tokens[self._at + 1].kind in {"int", "float"}
            ):
                return self._member()
            self._at += 1
            count += 1
        operand = self._member()
        if count % 2 == 0:
            return operand
        return Call(first.offset, "!_" if first.kind == "!" else "-_", [operand])

    # ------------------------------------------------------------ members

    def _member(self) -> Expr:
        node = self._primary()
        count = 0
        while mark := self._take(".", "["):
            optional = self._take("?") is not None
            if mark.kind == "[":
                index = self.expression()
                self.expect("]")
                node = Call(mark.offset, "_[?_]" if optional else "_[_]", [node, index])
            else:
                name = self.expect("name")
                opening = None if optional else self._take("(")
                if opening is None:
                    node = Select(mark.offset, node, name.text, optional)
                else:
                    node = self._call(name, opening, node)
            count += 1
            if count >= MAX_DEPTH:
                raise _too_deep()
        return node

    def _call(self, name: _Token, opening: _Token, target: Expr | None, dot: str = "") -> Expr:
        arguments = self._items(")")
        expanded = macros.expand(opening.offset, name.text, target, arguments)
        return expanded or Call(opening.offset, dot + name.text, arguments, target)

    def _items(self, closing: str) -> list[Expr]:
        items: list[Expr] = []
        while not self._take(closing):
            if items:
                self.expect(",")
            items.append(self.expression())
        return items

    def _primary(self) -> Expr:
        token = self._next
        if token.kind in {"name", "."}:
            return self._named()
        self._at += 1
        if token.kind == "(":
            node = self.expression()
            self.expect(")")
            return node
        if token.kind == "[":
            return self._list(token)
        if token.kind == "{":
            return MapLiteral(token.offset, self._entries())
        return Literal(token.offset, self._literal(token))

    def _named(self) -> Expr:
        """A variable, a function call, or a message."""
        dot = "." if self._take(".") else ""
        name = self.expect("name")
        opening = self._take("(")
        message = None if opening else self._message(name, dot)
        if message is not None:
            return message
        if name.text in _RESERVED:
            raise SyntaxIssue(name.offset, f"reserved identifier: {name.text}")
        if opening is not None:
            return self._call(name, opening, None, dot)
        return Ident(name.offset, dot + name.text)

    def _message(self, name: _Token, dot: str) -> Expr | None:
        """``a.b.Name{...}`` from the name on, or None if no brace follows."""
        at = self._at
        path = dot + name.text
        while self._take("."):
            part = self._take("name")
            if part is None:
                break
            path += f".{part.text}"
        brace = self._take("{")
        if brace is None:
            self._at = at
            return None
        values: list[Expr] = []
        while not self._take("}"):
            if values:
                self.expect(",")
                if self._take("}"):
                    break
            self._take("?")
            self.expect("name")
            self.expect(":")
            values.append(self.expression())
        return Message(brace.offset, path, values)

    def _list(self, opening: _Token) -> Expr:
        elements: list[Expr] = []
        optionals = set()
        while not self._take("]"):
            if elements:
                self.expect(",")
                if self._take("]"):
                    break
            if self._take("?"):
                optionals.add(len(elements))
            elements.append(self.expression())
        return ListLiteral(opening.offset, elements, frozenset(optionals))

    def _entries(self) -> list[tuple[Expr, Expr, bool]]:
        entries: list[tuple[Expr, Expr, bool]] = []
        while not self._take("}"):
            if entries:
                self.expect(",")
                if self._take("}"):
                    break
            optional = self._take("?") is not None
            key = self.expression()
            self.expect(":")
            entries.append((key, self.expression(), optional))
        return entries

    def _literal(self, token: _Token) -> object:
        if token.kind == "-":
            number = self._tokens[self._at]
            if number.kind in {"int", "float"}:
                self._at += 1
                return _number(number, token.offset, sign=-1)
        if token.kind in {"int", "uint", "float"}:
            return _number(token, token.offset)
        if token.kind == "string":
            return _string(token)
        if token.kind == "bytes":
            raise SyntaxIssue(token.offset, "bytes are not supported by aiokube-scheduler")
        if token.kind in {"true", "false", "null"}:
            return {"true": True, "false": False, "null": None}[token.kind]
        raise SyntaxIssue(
            token.offset,
            f"Syntax error: mismatched input '{token.text}' expecting {_EXPRESSION}",
        )


# ---------------------------------------------------------------- literals


def _number(token: _Token, offset: int, sign: int = 1) -> object:
    text = token.text.lower()
    if token.kind == "float":
        number = sign * float(text)
        if number in {float("inf"), float("-inf")}:
            raise SyntaxIssue(offset, "invalid double literal")
        return number
    digits = text.rstrip("u")
    if len(digits) > 400:
        raise SyntaxIssue(offset, f"invalid {token.kind} literal")
    value = sign * int(digits, 16 if digits.startswith("0x") else 10)
    low, high = (0, UINT_MAX) if token.kind == "uint" else (INT_MIN, INT_MAX)
    if not low <= value <= high:
        raise SyntaxIssue(offset, f"invalid {token.kind} literal")
    return Uint(value) if token.kind == "uint" else value


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


def _string(token: _Token) -> str:
    """The value of a string token. Raises SyntaxIssue."""
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


def _too_deep() -> SyntaxIssue:
    return SyntaxIssue(0, f"expression recursion limit exceeded: {MAX_DEPTH}")
