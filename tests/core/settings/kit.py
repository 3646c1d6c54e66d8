"""Short ways to write configurations and to read what is wrong with them."""

import textwrap

from app.settings.load import Loaded, load
from app.settings.problems import ConfigurationError, Problem

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def v1(body: str = "") -> str:
    """A v1 file with this body; the body's first line is line 3."""
    return HEAD + textwrap.dedent(body)


def beta(version: str, body: str = "") -> str:
    """A file of an older version; the body's first line is line 3."""
    return v1(body).replace("/v1\n", f"/{version}\n", 1)


def with_extension(body: str, extension: str) -> str:
    """A v1 file with a second document."""
    head = "apiVersion: aiokube-scheduler.io/v1alpha1\nkind: AiokubeSchedulerConfiguration\n"
    return f"{v1(body)}---\n{head}{textwrap.dedent(extension)}"


def short(problem: Problem) -> str:
    """``line: path: message``."""
    return f"{problem.line}: {problem.path}: {problem.message}"


def mistakes(text: str) -> list[str]:
    """What is wrong with a text, in order; empty when it loads."""
    try:
        load(text)
    except ConfigurationError as error:
        return [short(problem) for problem in error.problems]
    return []


def warnings(text: str) -> list[str]:
    """What is said about a valid text."""
    return [short(problem) for problem in load(text).warnings]


def loaded(body: str = "") -> Loaded:
    """A v1 file with this body, loaded."""
    return load(v1(body))
