"""What of a device an expression can see: devices that do not differ in that need not be asked one by one."""

from app.cel.syntax import Bind, Call, Ident, Literal, Node, Select, Variable, children

Path = tuple[str | None, ...]
"""Of ``device``: a field, a domain, a name. None in the place of a domain is that of the driver."""

_MAPS = frozenset({"attributes", "capacity"})


class _Everything(Exception):  # noqa: N818 - it says what is read
    """The expression reads more than single values."""


def reads(tree: Node) -> frozenset[Path] | None:
    """The values (field, domain, name) and presences (field, domain) that a checked expression depends on; None: all."""
    found: set[Path] = set()
    try:
        _visit(tree, found, {})
    except _Everything:
        return None
    return frozenset(found)


def _visit(node: Node, found: set[Path], names: dict[Variable | None, Path]) -> None:
    path = _path(node, names)
    if path is not None:
        _read(path, found)
        return
    if isinstance(node, Call) and node.function == "@in" and isinstance(node.arguments[0], Literal):
        inside, name = _path(node.arguments[1], names), node.arguments[0].value
        if inside and inside[0] in _MAPS and len(inside) < 3 and isinstance(name, str):
            found.add((*inside, name))
            return
    if isinstance(node, Bind):
        bound = _path(node.value, names)
        if bound is not None and len(bound) == 1 and bound[0] in _MAPS:
            raise _Everything  # a device without any makes a difference: no domain is found then
        if bound is not None:
            _visit(node.body, found, names | {node.variable: bound})
            return
    for it in children(node):
        _visit(it, found, names)


def _read(path: Path, found: set[Path]) -> None:
    """A path whose value is used: that of a map is all that is in it."""
    if not path or (path[0] in _MAPS and len(path) < 3):
        raise _Everything
    found.add(path)


def _path(node: Node, names: dict[Variable | None, Path]) -> Path | None:
    """What a chain of members leads to, or None where it is none, or leaves the device."""
    if isinstance(node, Ident):
        if node.variable is not None and node.variable.slot < 0:
            return ()
        return names.get(node.variable)
    if isinstance(node, Select) and node.ident is None:
        return _longer(_path(node.operand, names), node.name)
    if isinstance(node, Call) and node.function in {"_[_]", "_[?_]"}:
        key = node.arguments[1]
        inside = _path(node.arguments[0], names)
        if isinstance(key, Literal) and isinstance(key.value, str):
            return _longer(inside, key.value)
        if _path(key, names) == ("driver",):
            return _longer(inside, None)
    return None


def _longer(path: Path | None, key: str | None) -> Path | None:
    if path is None or len(path) == 3 or (path and path[0] not in _MAPS):
        return None
    return (*path, key) if key is not None or len(path) == 1 else None
