"""Parses any YAML or JSON text for ``yaml``.

PyYAML composes the nodes; scalars are resolved as kube-scheduler's reader does (YAML 1.1 booleans and octals, no dates,
no base-60 numbers). For configuration the values have only JSON's types, duplicate keys are mistakes, and escaped
surrogates are read as in Go. What aliases repeat is limited.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import yaml

from app.settings.fieldtext import show
from app.settings.plain_yaml import (
    BOOLEANS,
    FLOAT,
    INTEGER,
    Document,
    YamlError,
    YamlText,
    integer,
    number,
)
from app.settings.problems import Mark, Path, Problem, render_path
from app.wire.go_json import clean

_TAG: Final = "tag:yaml.org,2002:"
_MERGE: Final = f"{_TAG}merge"
_MAX_NODES: Final = 100_000
"""Limit of nodes in a text, against aliases of aliases ("billion laughs")."""
_TOO_MANY: Final = f"more than {_MAX_NODES} values"
_REPEATED: Final = f"{_TOO_MANY}: aliases repeat too much"
_IN_ITSELF: Final = "an alias may not contain itself"
_MAX_LEVELS: Final = 1000
"""Levels of lists and maps in texts that are read quickly."""

_LONG_INTEGER: Final = 100
"""Characters beyond which an integer has more than 64 bits, whatever its base."""


def read_documents(text: str) -> YamlText:
    """See yaml.read_documents."""
    problems: list[Problem] = []
    documents: list[Document] = []
    is_json = text.lstrip().startswith("{")
    try:
        for node in _compose(_spaces_for_tabs(text) if is_json else text):
            reader = _Reader(problems, is_json=is_json)
            value = reader.read(node, ())
            if value is not None:
                documents.append(Document(value, reader.marks))
    except yaml.YAMLError as error:
        problems.append(_syntax_problem(text, error))
    except RecursionError:
        problems.append(Problem(0, 0, "", "yaml: nested too deeply"))
    return YamlText(tuple(documents), tuple(problems))


_RESOLVERS: Final[dict[Any, Any]] = {
    first: [pair for pair in pairs if not pair[0].endswith((":timestamp", ":int", ":float"))]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Loader(yaml.SafeLoader):
    """SafeLoader with kube-scheduler's rules for plain scalars."""

    yaml_implicit_resolvers: dict[Any, Any] = {**_RESOLVERS}  # noqa: RUF012 - PyYAML's own registry

    def __init__(self, text: bytes | str) -> None:
        super().__init__(text)
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """See yaml.composer.Composer. Raises YAMLError as soon as there are too many."""
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise yaml.YAMLError(_TOO_MANY)
        return super().compose_node(parent, index)


class _FastLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # chosen at run time
    """The same rules, in C if PyYAML has it."""

    yaml_implicit_resolvers: dict[Any, Any] = {**_RESOLVERS}  # noqa: RUF012 - PyYAML's own registry


for _each in (_Loader, _FastLoader):
    _each.add_implicit_resolver(f"{_TAG}int", INTEGER, list("-+0123456789"))
    _each.add_implicit_resolver(f"{_TAG}float", FLOAT, list("-+.0123456789"))


def load_documents(text: bytes | str, *, surrogates: bool = False) -> list[Any]:
    """See yaml.load_documents."""
    try:
        return _load(text, surrogates=surrogates)
    except yaml.YAMLError as error:
        raise YamlError(str(error)) from error


def _load(text: bytes | str, *, surrogates: bool) -> list[Any]:
    if not surrogates:
        _check_depth(text)
    star, anchor = (b"*", b"&") if isinstance(text, bytes) else ("*", "&")
    aliased = star in text and anchor in text  # type: ignore[operator]
    loader = _Loader(text) if surrogates else _FastLoader(text)
    documents = []
    try:
        while loader.check_node():
            node = loader.get_node()
            if aliased and node is not None:
                _Repetition().check(node)
            documents.append(loader.construct_document(node))
    finally:
        loader.dispose()
    return [value for value in documents if value is not None]


def _check_depth(text: bytes | str) -> None:
    """Raises YAMLError for a text with too many levels, which would overflow the stack of the loader in C.

    Only texts with many brackets and dashes are looked at: levels by indentation alone take too many bytes.
    """
    found = text.encode(errors="replace") if isinstance(text, str) else text
    if sum(map(found.count, (b"[", b"{", b"- ", b"? "))) <= _MAX_LEVELS:
        return
    depth = 0
    for event in yaml.parse(text, Loader=_FastLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > _MAX_LEVELS:
                raise yaml.YAMLError("it is nested too deeply")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _Repetition:
    """Limits what the aliases of a document repeat: values as often as they occur, and levels."""

    def __init__(self) -> None:
        #: By id of a node: how many values it stands for and how deep it is; None while it is open.
        self._sizes: dict[int, tuple[int, int] | None] = {}

    def check(self, root: yaml.Node) -> None:
        """Raises YAMLError for a document with too much repetition."""
        size, _ = self._size(root)
        if size - len(self._sizes) > _MAX_NODES:
            raise yaml.YAMLError(_REPEATED)

    def _size(self, node: yaml.Node) -> tuple[int, int]:
        if id(node) in self._sizes:
            known = self._sizes[id(node)]
            if known is None:
                raise yaml.YAMLError(_IN_ITSELF)
            return known
        self._sizes[id(node)] = None
        size, depth = 1, 0
        if not isinstance(node, yaml.ScalarNode):
            inner = node.value
            if isinstance(node, yaml.MappingNode):
                inner = [each for pair in inner for each in pair]
            for each in inner:
                count, levels = self._size(each)
                size += count
                depth = max(depth, levels)
        if depth >= _MAX_LEVELS:
            raise yaml.YAMLError("it is nested too deeply")
        self._sizes[id(node)] = size, depth + 1
        return size, depth + 1


def _compose(text: str) -> Iterator[yaml.Node]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            if node is not None:
                yield node
    finally:
        loader.dispose()


def _spaces_for_tabs(text: str) -> str:
    """Replaces tabs by spaces: JSON may be indented with tabs, and cannot have them inside strings."""
    if "\t" not in text:
        return text
    try:
        json.loads(text)
    except ValueError:
        return text
    return text.replace("\t", " ")


_SCALARS: Final[dict[str, Callable[[str], Any]]] = {
    f"{_TAG}null": lambda _: None,
    f"{_TAG}bool": lambda text: BOOLEANS[text.lower()],
    f"{_TAG}int": integer,
    f"{_TAG}float": number,
    f"{_TAG}str": clean,
}


def _number(loader: Any, node: yaml.Node) -> Any:
    """A number, also one with an explicit tag: base 60, which takes quadratic time, is not read.

    As in go-yaml, an integer beyond 64 bits is a float. Raises ValueError for one of very many digits.
    """
    text = loader.construct_scalar(node)
    if node.tag.endswith(":int") and len(text) > _LONG_INTEGER:
        raise ValueError(f"an integer of {len(text)} digits")
    value = _SCALARS[node.tag](text)
    return float(value) if node.tag.endswith(":int") and not -(2**63) <= value < 2**64 else value


for _each in (_Loader, _FastLoader):
    _each.add_constructor(f"{_TAG}int", _number)
    _each.add_constructor(f"{_TAG}float", _number)


class _Reader:
    """Turns the nodes of one document into values; problems are appended to the list given."""

    def __init__(self, problems: list[Problem], *, is_json: bool) -> None:
        self.marks: dict[Path, Mark] = {}
        self._is_json = is_json
        self._problems = problems
        self._nodes = 0
        self._open: set[int] = set()

    def read(self, node: yaml.Node, path: Path) -> Any:
        """The value of ``node``; None and a problem if it cannot be parsed."""
        self._count()
        self.marks.setdefault(path, _mark(node))
        if id(node) in self._open:
            return self._refuse(node, path, f"yaml: {_IN_ITSELF}")
        self._open.add(id(node))
        try:
            return self._value(node, path)
        finally:
            self._open.discard(id(node))

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise yaml.YAMLError(_REPEATED)

    def _value(self, node: yaml.Node, path: Path) -> Any:
        if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
            return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]
        convert = _SCALARS.get(node.tag) if isinstance(node, yaml.ScalarNode) else None
        if convert is None:
            return self._refuse(
                node, path, f"yaml: tag {node.tag.replace(_TAG, '!!')} is not read here"
            )
        try:
            return convert(node.value)
        except (ValueError, KeyError):
            name = node.tag.replace(_TAG, "!!")
            return self._refuse(
                node, path, f"yaml: cannot read {show(clean(node.value))} as {name}"
            )

    def _mapping(self, node: yaml.MappingNode, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: list[yaml.Node] = []
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE:
                merged.append(value_node)
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "yaml: a key must be a plain text")
                continue
            self._entry(values, key_node, value_node, path)
        for source in merged:
            self._merge(values, source, path)
        return values

    def _entry(
        self, values: dict[str, Any], key_node: yaml.ScalarNode, value_node: yaml.Node, path: Path
    ) -> None:
        key = clean(key_node.value)
        here = (*path, key)
        if key in values:
            said = (
                f'duplicate field "{render_path(here)}"'
                if self._is_json
                else f"key {show(key)} already set in map"
            )
            first = self.marks[here]
            self._refuse(key_node, here, f"{said} (first in line {first.line})")
            return
        self.marks.setdefault(here, _mark(key_node))  # merged keys are not duplicates
        values[key] = self.read(value_node, here)

    def _merge(self, values: dict[str, Any], source: yaml.Node, path: Path) -> None:
        """YAML's ``<<``: keys that the mapping does not set come from ``source``; earlier sources come first."""
        sources = source.value if isinstance(source, yaml.SequenceNode) else [source]
        for node in sources:
            self._count()
            if not isinstance(node, yaml.MappingNode):
                self._refuse(node, path, "yaml: << takes a mapping or a list of mappings")
                continue
            for key, value in self._mapping(node, path).items():
                values.setdefault(key, value)

    def _refuse(self, node: yaml.Node, path: Path, message: str) -> None:
        line, column = _mark(node)
        self._problems.append(Problem(line, column, render_path(path), message))


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _syntax_problem(text: str, error: yaml.YAMLError) -> Problem:
    """PyYAML's error as a problem."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        said = " ".join(part for part in (error.context, error.problem) if part)
        place = Mark(mark.line + 1, mark.column + 1) if mark else Mark(0, 0)
        return Problem(place.line, place.column, "", f"yaml: {said}")
    position = getattr(error, "position", None)
    if position is not None:
        before = text[:position]
        column = position - (before.rfind("\n") + 1) + 1
        said = f"yaml: character {getattr(error, 'character', '?')!r} is not allowed"
        return Problem(before.count("\n") + 1, column, "", said)
    return Problem(0, 0, "", f"yaml: {error}")
