"""Parses expressions into trees. Macros (``has``, ``all``, ``map``, ...) are expanded on the way."""

from app.cel import lexer, macros
from app.cel.basics import INT_MAX, INT_MIN, UINT_MAX
from app.cel.issues import SyntaxIssue
from app.cel.lexer import Token
from app.cel.syntax import Call, Ident, ListLiteral, Literal, MapLiteral, Message, Node, Select
from app.cel.values import Uint

MAX_DEPTH = 250
"""Kubernetes' bound of brackets within brackets, and of operators or members in a row."""
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


def parse(source: str) -> Node:
    """The tree of an expression. Raises SyntaxIssue."""
    parser = _Parser(lexer.tokens(source))
    tree = parser.expression()
    parser.expect("end")
    return tree


class _Parser:
    __slots__ = ("_at", "_depth", "_tokens")

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    # ------------------------------------------------------------ tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self, *kinds: str) -> Token | None:
        token = self._tokens[self._at]
        if token.kind not in kinds:
            return None
        self._at += 1
        return token

    def expect(self, kind: str) -> Token:
        """Takes a token that must come now."""
        token = self._take(kind)
        if token is None:
            wanted = {"end": "<EOF>", "name": "IDENTIFIER"}.get(kind, f"'{kind}'")
            raise SyntaxIssue(
                self._next.offset,
                f"Syntax error: mismatched input '{self._next.text}' expecting {wanted}",
            )
        return token

    # ------------------------------------------------------------ operators

    def expression(self) -> Node:
        """``a ? b : c``, or what binds tighter."""
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

    def _operation(self, loosest: int) -> Node:
        """Operators that bind as tightly as this or tighter, grouped from the left."""
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

    def _more_terms(self, mark: Token, operands: list[Node], level: int) -> Token:
        """All terms of ``a || b || c`` are one call's, at the place of the operator in the middle."""
        marks = [mark]
        while more := self._take(mark.kind):
            marks.append(more)
            operands.append(self._operation(level + 1))
        return marks[len(marks) // 2]

    def _unary(self) -> Node:
        """``!a`` and ``-a``; two of a kind undo each other. The sign of a number is part of it."""
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

    def _member(self) -> Node:
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

    def _call(self, name: Token, opening: Token, target: Node | None, dot: str = "") -> Node:
        arguments = self._items(")")
        expanded = macros.expand(opening.offset, name.text, target, arguments)
        return expanded or Call(opening.offset, dot + name.text, arguments, target)

    def _items(self, closing: str) -> list[Node]:
        items: list[Node] = []
        while not self._take(closing):
            if items:
                self.expect(",")
            items.append(self.expression())
        return items

    def _primary(self) -> Node:
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

    def _named(self) -> Node:
        """A variable, a function's call, or a message."""
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

    def _message(self, name: Token, dot: str) -> Node | None:
        """``a.b.Name{...}`` from the name on; None where no brace follows."""
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
        values: list[Node] = []
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

    def _list(self, opening: Token) -> Node:
        elements: list[Node] = []
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

    def _entries(self) -> list[tuple[Node, Node, bool]]:
        entries: list[tuple[Node, Node, bool]] = []
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

    def _literal(self, token: Token) -> object:
        if token.kind == "-":
            number = self._tokens[self._at]
            if number.kind in {"int", "float"}:
                self._at += 1
                return _number(number, token.offset, sign=-1)
        if token.kind in {"int", "uint", "float"}:
            return _number(token, token.offset)
        if token.kind == "string":
            return lexer.string(token)
        if token.kind == "bytes":
            raise SyntaxIssue(token.offset, "bytes are not supported by aiokube-scheduler")
        if token.kind in {"true", "false", "null"}:
            return {"true": True, "false": False, "null": None}[token.kind]
        raise SyntaxIssue(
            token.offset,
            f"Syntax error: mismatched input '{token.text}' expecting {_EXPRESSION}",
        )


def _number(token: Token, offset: int, sign: int = 1) -> object:
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


def _too_deep() -> SyntaxIssue:
    return SyntaxIssue(0, f"expression recursion limit exceeded: {MAX_DEPTH}")
