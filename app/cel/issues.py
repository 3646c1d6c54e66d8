"""Mistakes in an expression, and where they are."""

from typing import NamedTuple


class Issue(NamedTuple):
    """What is wrong with an expression, and where (an offset in characters)."""

    offset: int
    text: str


class SyntaxIssue(Exception):  # noqa: N818 - reported as an Issue
    """The parser cannot go on."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.issue = Issue(offset, text)


def display(source: str, issues: list[Issue]) -> str:
    """The issues in the order of their places, each with its line and a mark below it."""
    return "\n".join(_display(source, issue) for issue in sorted(issues, key=lambda it: it.offset))


def _display(source: str, issue: Issue) -> str:
    if not source:
        return f"ERROR: <input>:1:0: {issue.text}"
    before = source[: issue.offset]
    number = before.count("\n") + 1
    column = issue.offset - (before.rfind("\n") + 1)
    line = source.split("\n")[number - 1].replace("\t", " ")
    marks = "".join("." if char.isascii() else "\uff0e" for char in line[:column])
    mark = "\uff3e" if column < len(line) and not line[column].isascii() else "^"
    return f"ERROR: <input>:{number}:{column + 1}: {issue.text}\n | {line}\n | {marks}{mark}"
