"""kubectl, unmodified."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

NEEDS_KUBECTL = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not on the PATH"
)
TIMEOUT_SECONDS = 60


class Result(NamedTuple):
    code: int
    out: str
    err: str


def as_list(*manifests: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})


class Kubectl:
    """Runs kubectl in one namespace; its caches stay in a directory of the test's own."""

    def __init__(self, kubeconfig: Path, home: Path, namespace: str = "default") -> None:
        self.namespace = namespace
        self._home = home
        self._kubeconfig = kubeconfig

    def environment(self) -> dict[str, str]:
        own = {"KUBECONFIG": str(self._kubeconfig), "HOME": str(self._home)}
        return {name: os.environ[name] for name in ("PATH",)} | own

    def command(self, *arguments: str) -> list[str]:
        return ["kubectl", "--namespace", self.namespace, *arguments]

    def run(self, *arguments: str, stdin: str = "") -> Result:
        done = subprocess.run(
            self.command(*arguments),
            env=self.environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def __call__(self, *arguments: str, stdin: str = "") -> str:
        """Runs a command that must succeed and returns what it prints."""
        result = self.run(*arguments, stdin=stdin)
        assert result.code == 0, (arguments, result)
        return result.out

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))

    def apply(self, *manifests: dict[str, Any]) -> str:
        return self("apply", "-f", "-", stdin=as_list(*manifests))

    def rows(self, *arguments: str) -> list[list[str]]:
        """The rows of a table, cut into words."""
        return [line.split() for line in self(*arguments, "--no-headers").splitlines()]
