"""The documentation site: every document is in its navigation, and links are mended. ``make docs`` checks the links."""

import re

import pytest
import yaml

from mkdocs_hooks import documents, expanded, illustrated, page_of, relinked
from tests.markdown import DOCUMENTS, ROOT


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without mkdocs."""


Loader.add_multi_constructor("", lambda *_: None)


@pytest.fixture(scope="module")
def named() -> list[str]:
    nav = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]
    return list(documents(list(expanded(nav))))


def test_the_navigation_names_every_document_once(named):
    own = {path.relative_to(ROOT).as_posix() for path in DOCUMENTS}
    assert sorted(named) == sorted(path for path in own if not path.startswith("docs/examples/"))


def test_each_document_has_a_page_of_its_own(named):
    assert len({page_of(document) for document in named}) == len(named)


@pytest.mark.parametrize(
    ("document", "link", "mended"),
    [
        ("docs/install.md", "[x](plugins.md#c)", "[x](plugins.md#c)"),
        ("docs/install.md", "[x](../README.md)", "[x](index.md)"),
        ("README.md", "[x `y`](docs/plugins.md)", "[x `y`](plugins.md)"),
        ("docs/install.md", "[x](../kit/README.md#z)", "[x](repository/kit.md#z)"),
        ("docs/install.md", "[x](../kit)", "[x](repository/kit.md)"),
        ("kit/README.md", "[x](../docs/spec/cycle.md)", "[x](../spec/cycle.md)"),
        ("docs/spec/cycle.md", "[x](../../README.md)", "[x](../index.md)"),
        (
            "docs/install.md",
            "[x](#c) [y](https://b) ![z](p.png)",
            "[x](#c) [y](https://b) ![z](p.png)",
        ),
        ("docs/install.md", "[x](../app/cli/run.py) [y](plugins.md)", "x [y](plugins.md)"),
        ("docs/install.md", "[x](../app/nosuch.py)", "[x](../app/nosuch.py)"),
        ("docs/install.md", "```\n[x](../app/cli/run.py)\n```", "```\n[x](../app/cli/run.py)\n```"),
    ],
)
def test_links(document, link, mended):
    pages = {
        "README.md",
        "docs/install.md",
        "docs/plugins.md",
        "docs/spec/cycle.md",
        "kit/README.md",
    }
    assert relinked(link, document, pages, "") == mended


def test_pictures_are_shown_if_they_are_there():
    text = "a\n<!-- picture page-400.png#only-dark: The page -->\n<!-- picture none.png: None -->\n"
    assert illustrated(text, "dashboard.md", {"page-400.png"}) == (
        "a\n![The page](pictures/page-400.png#only-dark)\n\n"
    )
    assert "(../pictures/page-400.png#" in illustrated(text, "spec/x.md", {"page-400.png"})


def test_the_tests_of_the_page_make_the_pictures_that_documents_show():
    shown = {
        name
        for document in DOCUMENTS
        for name in re.findall(r"<!-- picture ([\w.-]+)", document.read_text())
    }
    made = (ROOT / "tests" / "whole" / "test_dashboard.py").read_text()
    names = re.findall(r'keep\(page, f?"([^"]+)"', made)
    patterns = [re.sub(r"\{\w+\}", r"\\w+", name) for name in names]
    assert shown
    for name in shown:
        assert any(re.fullmatch(rf"{pattern}\.png", name) for pattern in patterns), name


def test_links_to_files_lead_to_the_repository():
    text = relinked("[x](../app/cli/run.py)", "docs/install.md", set(), "https://example.com/r")
    assert text == "[x](https://example.com/r/blob/main/app/cli/run.py)"
