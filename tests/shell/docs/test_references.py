"""Every link, path, module, command and target that a document or a docstring names exists."""

import ast
import glob
import importlib
import importlib.util
import io
import re
import shlex
import tokenize
from functools import lru_cache
from pathlib import Path

import click
import pytest

from app.cli import main
from tests.markdown import DOCUMENTS, ROOT, anchors, code_spans, commands, headings, links

SPECIFICATION = sorted((ROOT / "docs" / "spec").rglob("*.md"))
SOURCES = sorted(
    path
    for folder in ("app", "extenders", "tests", "docs/examples")
    for path in (ROOT / folder).rglob("*.py")
)
#: A page of docs/, with an anchor or without.
REFERENCE = re.compile(r"(?<![\w./-])docs/[\w./-]+?\.md(?:#[\w-]+)?")
#: A path in this repository.
PATH = re.compile(
    r"(?<![\w./<{-])(?:app|config|docs|extenders|helm|tests)/(?:[\w.*-]|/|\{[\w,]+\})*[\w*}/]"
)
#: A module of ours, or something in one.
MODULE = re.compile(r"(?<![\w./\"-])(?:app|extenders|tests)(?:\.[A-Za-z_]\w*)+")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def described(path: Path) -> list[str]:
    """What a module says to readers: docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    texts = [
        node.value.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return texts + [token.string for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document):
    for link in links(document):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), link
        assert not fragment or fragment in anchors(target), link


@pytest.mark.parametrize("document", SPECIFICATION, ids=name)
def test_a_heading_of_the_specification_occurs_once(document):
    assert len(headings(document)) == len(set(headings(document)))


@lru_cache
def resolves(reference: str) -> bool:
    path, _, fragment = reference.partition("#")
    target = ROOT / path
    return target.exists() and (not fragment or fragment in anchors(target))


def test_references_to_pages_lead_to_a_heading():
    found = [
        (name(path), reference)
        for path in (*SOURCES, *DOCUMENTS)
        for reference in REFERENCE.findall(path.read_text(encoding="utf-8"))
    ]
    assert [(where, reference) for where, reference in found if not resolves(reference)] == []
    assert sum("docs/spec/" in reference for _, reference in found) > 150


def test_every_rule_of_a_plugin_is_cited():
    cited = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    pages = [name(page) for page in SPECIFICATION if page.parent.name == "plugins"]
    assert [page for page in pages if page not in cited] == []


def exists(path: str) -> bool:
    pattern = re.sub(r"\{[^}]*\}", "*", path)
    if re.fullmatch(r"docs/decisions/\d{4}", pattern):
        pattern += "-*.md"
    return any(glob.iglob(str(ROOT / pattern)))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_paths_in_documents_exist(document):
    paths = {path for span in code_spans(document) for path in PATH.findall(span)}
    assert {path for path in paths if not exists(path)} == set()


def test_paths_in_docstrings_exist():
    missing = {
        (name(source), path)
        for source in SOURCES
        for text in described(source)
        for path in PATH.findall(text)
        if not exists(path)
    }
    assert missing == set()


@lru_cache
def is_defined(dotted: str) -> bool:
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


def test_modules_in_docstrings_and_documents_exist():
    texts = [(name(source), text) for source in SOURCES for text in described(source)]
    texts += [(name(document), span) for document in DOCUMENTS for span in code_spans(document)]
    missing = {
        (where, dotted)
        for where, text in texts
        for dotted in MODULE.findall(text)
        if not is_defined(dotted)
    }
    assert missing == set()


def given(document: Path, program: str) -> list[list[str]]:
    """The commands of a program that a document gives, in console blocks and in sentences, as words."""
    lines = [*commands(document), *(span.removeprefix("$ ") for span in code_spans(document))]
    return [shlex.split(line) for line in lines if re.match(rf"{program}( |$)", line)]


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_commands_are_understood(document):
    for words in given(document, "aiokube-scheduler"):
        _, *rest = words
        if not rest:
            continue
        called = rest.pop(0) if not rest[0].startswith("-") else "run"
        command = main.get_command(click.Context(main), called)
        assert command is not None, words
        if rest and "--help" not in rest:
            command.make_context(called, rest)


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_targets_exist(document):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for words in given(document, "make"):
        assert {word for word in words[1:] if "=" not in word} <= targets, words


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_programs_of_ours_exist(document):
    for words in given(document, "python"):
        if words[1:2] == ["-m"] and words[2].partition(".")[0] in {"app", "extenders", "tests"}:
            assert importlib.util.find_spec(words[2]), words


def benchmarks() -> list[list[str]]:
    """The arguments of every benchmark that a document describes."""
    made = [words for document in DOCUMENTS for words in given(document, "make bench")]
    values = [word for words in made for word in words if word.startswith("BENCH=")]
    direct = [words for document in DOCUMENTS for words in given(document, "python -m tests.bench")]
    return [shlex.split(value.removeprefix("BENCH=")) for value in values] + [w[3:] for w in direct]


@pytest.mark.parametrize("arguments", benchmarks(), ids=" ".join)
def test_benchmarks_are_understood(arguments, tmp_path):
    from tests.bench.__main__ import main as bench

    live = tmp_path / "live.kubeconfig"
    live.touch()
    words = [str(live) if word.endswith(live.name) else word for word in arguments]
    bench.make_context("bench", [word for word in words if word != "..."])


def test_there_are_benchmarks():
    assert len(benchmarks()) >= 2
