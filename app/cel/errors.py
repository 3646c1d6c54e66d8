"""Errors of expressions, and how they are shown."""

from typing import Final

import msgspec


class EvaluationError(Exception):
    """An expression has no value for this input. ``&&``, ``||`` and the quantifiers can absorb it."""


class EvaluationAborted(Exception):  # noqa: N818 - it says what happened
    """An evaluation ended early. No operator absorbs this."""


class CostLimitExceeded(EvaluationAborted):
    """The evaluation cost more than Kubernetes allows."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class EvaluationExpired(EvaluationAborted):
    """The time for the evaluation is over: there is no result yet."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: no time left")


class CompileError(Exception):
    """An expression that cannot be used. The text is kube-scheduler's, except for syntax errors."""


class Issue(msgspec.Struct, frozen=True):
    """One mistake in an expression. ``offset`` is its place, in characters."""

    offset: int
    text: str


class SyntaxIssue(Exception):  # noqa: N818 - reported as an Issue
    """The expression cannot be parsed."""

    def __init__(self, offset: int, text: str) -> None:
        super().__init__(text)
        self.issue = Issue(offset, text)


#: Issues that are shown of one expression: each comes with a whole line of it.
MAX_SHOWN: Final = 100


def display(source: str, issues: list[Issue]) -> str:
    """The first issues in the order of their places, each with its line of ``source`` and a mark below it."""
    shown = [_display(source, it) for it in sorted(issues[:MAX_SHOWN], key=lambda it: it.offset)]
    if len(issues) > MAX_SHOWN:
        shown.append(f"{len(issues) - MAX_SHOWN} more errors were truncated")
    return "\n".join(shown)


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
