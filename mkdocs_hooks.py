"""Hooks of the documentation site: documents are named, and linked, by their paths in the repository.

Documents outside docs/ become pages. Links between pages lead to pages; links to other files lead to the repository if
REPOSITORY_URL names it, and are plain text otherwise. A comment <!-- picture FILE: TEXT --> becomes a picture if `make
pictures` has made it.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent
_LINK: Final = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_PICTURE: Final = re.compile(r"<!-- picture ([\w.-]+\.png)(#[a-z-]+)?: (.*?) -->")
#: Where the tests of the page leave pictures of it.
PICTURES: Final = ROOT / "build" / "pictures"
_FENCE: Final = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def page_of(document: str) -> str:
    """The page of a document: both are paths, of the repository and of the site."""
    if document == "README.md":
        return "index.md"
    if document.startswith("docs/"):
        return document.removeprefix("docs/")
    return f"repository/{document.replace('/README.md', '.md').lower()}"


def expanded(nav: list[Any]) -> Iterator[Any]:
    """The navigation with the documents of folders in their places."""
    for entry in nav:
        (title, value), *_ = entry.items()
        if isinstance(value, list):
            yield {title: list(expanded(value))}
        elif value.endswith("/"):
            found = sorted(
                (ROOT / value).rglob("*.md"), key=lambda path: (path.name != "README.md", path)
            )
            yield {title: [path.relative_to(ROOT).as_posix() for path in found]}
        else:
            yield entry


def documents(nav: list[Any]) -> Iterator[str]:
    """The documents of a navigation that has been expanded."""
    for entry in nav:
        value = entry if isinstance(entry, str) else next(iter(entry.values()))
        yield from documents(value) if isinstance(value, list) else [value]


def _pages(nav: list[Any]) -> list[Any]:
    return [
        page_of(entry)
        if isinstance(entry, str)
        else {k: _pages(v) if isinstance(v, list) else page_of(v) for k, v in entry.items()}
        for entry in nav
    ]


def relinked(markdown: str, document: str, pages: set[str], repository: str) -> str:
    """The text of a document with links for its page; code is left as it is."""
    parts, end = [], 0
    for fence in _FENCE.finditer(markdown):
        parts += [_relinked(markdown[end : fence.start()], document, pages, repository), fence[0]]
        end = fence.end()
    return "".join((*parts, _relinked(markdown[end:], document, pages, repository)))


def _relinked(text: str, document: str, pages: set[str], repository: str) -> str:
    here = posixpath.dirname(page_of(document)) or "."

    def replace(link: re.Match[str]) -> str:
        image, label, target = link.groups()
        path, hash_, fragment = target.partition("#")
        if image or "://" in target or not path:
            return link[0]
        found = posixpath.normpath(posixpath.join(posixpath.dirname(document), path))
        if found in pages:
            return f"[{label}]({posixpath.relpath(page_of(found), here)}{hash_}{fragment})"
        if f"{found}/README.md" in pages:
            return f"[{label}]({posixpath.relpath(page_of(f'{found}/README.md'), here)})"
        if not (ROOT / found).exists():
            return link[0]  # mkdocs says so
        return f"[{label}]({repository}/blob/main/{found})" if repository else label

    return _LINK.sub(replace, text)


def illustrated(markdown: str, page: str, known: set[str]) -> str:
    """The text of a page with its pictures, as far as they are known."""
    folder = posixpath.relpath("pictures", posixpath.dirname(page) or ".")

    def replace(comment: re.Match[str]) -> str:
        name, variant, text = comment.groups()
        return f"![{text}]({folder}/{name}{variant or ''})" if name in known else ""

    return _PICTURE.sub(replace, markdown)


# ---------------------------------------------------------------- what mkdocs calls


def on_config(config: Any) -> Any:
    """Replaces documents by their pages."""
    nav = list(expanded(config["nav"]))
    config["extra"]["documents"] = {page_of(each): each for each in documents(nav)}
    config["nav"] = _pages(nav)
    return config


def on_files(files: Any, config: Any) -> Any:
    """Adds the documents outside docs/, and the pictures."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - tests use this module without mkdocs

    for page, document in config["extra"]["documents"].items():
        if not document.startswith("docs/"):
            files.append(File.generated(config, page, content=(ROOT / document).read_text("utf-8")))
    for picture in sorted(PICTURES.glob("*.png")):
        where = f"pictures/{picture.name}"
        files.append(File.generated(config, where, abs_src_path=str(picture)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:  # noqa: ARG001 - mkdocs' signature
    """Mends the links of a page."""
    known = config["extra"]["documents"]
    repository = (config["repo_url"] or "").rstrip("/")
    found = {picture.name for picture in PICTURES.glob("*.png")}
    text = illustrated(markdown, page.file.src_uri, found)
    return relinked(text, known[page.file.src_uri], set(known.values()), repository)
