"""Counts what the code of app consists of: classes, names, mentions, lines, circles. Reads files, imports none of
them.
"""

import ast
import io
import re
import token
import tokenize
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
APP: Final = ROOT / "app"

#: Packages whose public classes a newcomer meets before the decision of a pod.
_CONCEPTS: Final = ("state", "framework", "cycle")
#: Packages that call plugins, and the modules in them that may examine any object that is called a plugin.
_CALLERS: Final = ("framework", "scheduler", "cycle")
_EXAMINERS: Final = ("framework/plugin_class.py", "framework/contract.py", "framework/testing.py")
#: What a module says that deals with pod groups, not with groups of users, of APIs or in patterns; the modules of their
#: own have these words in their paths.
_GROUPS: Final = re.compile(r"(?i:pod.?group|gang)|\bGroup[A-Z]\w+|\.groups import")
_OF_GROUPS: Final = re.compile(r"group|gang")
#: Not the scheduler: what is run beside it.
_LODGERS: Final = ("sim", "tools")
_WIDTH: Final = 120
_DOCUMENTED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE: Final = frozenset(
    {
        token.COMMENT,
        token.DEDENT,
        token.ENCODING,
        token.ENDMARKER,
        token.INDENT,
        token.NEWLINE,
        token.NL,
    }
)


class Module:
    """A file of app; ``path`` is relative to that folder."""

    def __init__(self, path: str, text: str) -> None:
        self.path: Final = path
        self.text: Final = text

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed file."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the tree."""
        return list(ast.walk(self.tree))

    @property
    def package(self) -> str:
        """The package in app; a module of app itself is its own."""
        return package(self.path)

    @property
    def dotted(self) -> str:
        """The name for imports."""
        return "app." + self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def code_lines(self) -> int:
        """The number of lines that have code: not only blanks, comments or docstrings."""
        docstrings = set(self._docstrings())
        lines: set[int] = set()
        for each in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if each.type not in _NO_CODE and each.start[0] not in docstrings:
                lines.update(range(each.start[0], each.end[0] + 1))
        return len(lines)

    def _docstrings(self) -> Iterator[int]:
        """The first lines of the docstrings of the module, its classes and its functions."""
        for node in self.nodes:
            if isinstance(node, _DOCUMENTED) and ast.get_docstring(node, clean=False) is not None:
                yield node.body[0].lineno

    def public_classes(self) -> list[str]:
        """The classes of the module itself that have no underscore."""
        return [n.name for n in self.tree.body if isinstance(n, ast.ClassDef) and n.name[0] != "_"]

    def public_names(self) -> set[str]:
        """The public classes, and public aliases of types."""
        aliases = set()
        for node in self.tree.body:
            match node:
                case (
                    ast.Assign(targets=[ast.Name(id=name)])
                    | ast.AnnAssign(target=ast.Name(id=name))
                ) if re.fullmatch(r"[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*", name):
                    aliases.add(name)
        return {*self.public_classes(), *aliases}

    def examinations(self) -> int:
        """Calls of hasattr and getattr."""
        return sum(
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"hasattr", "getattr"}
            for node in self.nodes
        )

    def imports(self, among: Container[str]) -> Iterator[str]:
        """The modules of these names that it imports anywhere, in functions and for type checkers too."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in among)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    name = f"{node.module}.{alias.name}"
                    if name in among:
                        yield name
                    elif node.module in among:
                        yield node.module


def package(path: str) -> str:
    """The first folder of a path in app; for a module of app itself its name."""
    return path.partition("/")[0].removesuffix(".py")


def modules() -> list[Module]:
    """All modules of app."""
    return [
        Module(file.relative_to(APP).as_posix(), file.read_text(encoding="utf-8"))
        for file in sorted(APP.rglob("*.py"))
    ]


class Count(NamedTuple):
    """A figure, and where it comes from."""

    figure: int
    places: tuple[str, ...] = ()


def counts(of: Iterable[Module]) -> dict[str, Count]:
    """Every count by its name."""
    every = list(of)
    core = [m for m in every if m.package not in _LODGERS]
    return {
        "code lines of app": _lines(every),
        "code lines of app without sim and tools": _lines(core),
        "public classes of state, framework and cycle": _of_each(
            (m.path, len(m.public_classes())) for m in every if m.package in _CONCEPTS
        ),
        "hasattr and getattr in framework, scheduler and cycle outside plugin_class": _of_each(
            (m.path, m.examinations())
            for m in every
            if m.package in _CALLERS and m.path not in _EXAMINERS
        ),
        "public names that exist twice": _twice(every),
        "modules that mention pod groups outside their own": _named(
            m.path for m in every if not _OF_GROUPS.search(m.path) and _GROUPS.search(m.text)
        ),
        "circles of files": _named(" ".join(circle) for circle in circles(every)),
        f"lines of app over {_WIDTH} columns": _of_each(
            (m.path, sum(len(line) > _WIDTH for line in m.text.splitlines())) for m in every
        ),
    }


def _lines(of: Iterable[Module]) -> Count:
    of_package: Counter[str] = Counter()
    for module in of:
        of_package[module.package] += module.code_lines
    return _of_each(of_package.items())


def _of_each(figures: Iterable[tuple[str, int]]) -> Count:
    some = sorted(((n, path) for path, n in figures if n), reverse=True)
    return Count(sum(n for n, _ in some), tuple(f"{path} {n}" for n, path in some))


def _named(places: Iterable[str]) -> Count:
    found = tuple(places)
    return Count(len(found), found)


def _twice(of: Iterable[Module]) -> Count:
    where: defaultdict[str, list[str]] = defaultdict(list)
    for module in of:
        for name in module.public_names():
            where[name].append(module.path)
    return _named(
        f"{name}: {' '.join(paths)}" for name, paths in sorted(where.items()) if len(paths) > 1
    )


def circles(of: Collection[Module]) -> list[list[str]]:
    """The sets of files that import each other, in a circle or through others; by import statements anywhere in
    them.
    """
    by_name = {module.dotted: module.path for module in of}
    imported = {
        module.path: {by_name[name] for name in module.imports(by_name)} - {module.path}
        for module in of
    }
    return [sorted(part) for part in _components(imported) if len(part) > 1]


def _components(graph: Mapping[str, set[str]]) -> Iterator[set[str]]:
    """The strongly connected parts of a graph: what reaches a node and is reached from it."""
    backwards: defaultdict[str, set[str]] = defaultdict(set)
    for start, ends in graph.items():
        for end in ends:
            backwards[end].add(start)
    left = set(graph)
    while left:
        some = next(iter(left))
        part = _reached(graph, some, left) & _reached(backwards, some, left)
        left -= part
        yield part


def _reached(graph: Mapping[str, set[str]], start: str, within: set[str]) -> set[str]:
    seen, todo = {start}, [start]
    while todo:
        for other in graph.get(todo.pop(), ()):
            if other in within and other not in seen:
                seen.add(other)
                todo.append(other)
    return seen
