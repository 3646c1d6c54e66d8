"""A fresh environment with the scheduler installed as a wheel.

Its dependencies are borrowed from the environment that runs the tests, and nothing is fetched.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.markdown import ROOT

TIMEOUT_SECONDS = 60.0
#: No index, no dependencies, no download of build tools.
PIP = {
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
}


class Environment(NamedTuple):
    """A virtual environment, and a directory with the documentation to work in."""

    scripts: Path
    directory: Path

    def variables(self) -> dict[str, str]:
        path = os.pathsep.join((str(self.scripts), os.environ["PATH"]))
        return {"PATH": path, "HOME": str(self.directory), "LANG": "C.UTF-8"} | PIP

    def start(self, command: str, **kwargs: Any) -> subprocess.Popen[str]:
        """Starts a shell command in a process group of its own."""
        return subprocess.Popen(
            command,
            shell=True,
            cwd=self.directory,
            env=self.variables(),
            text=True,
            stdout=subprocess.PIPE,
            start_new_session=True,
            **kwargs,
        )

    def run(self, command: str) -> tuple[int, str]:
        """Runs a shell command: its status, and all that it prints."""
        process = self.start(command, stderr=subprocess.STDOUT)
        try:
            out, _ = process.communicate(timeout=250)
        finally:
            stop(process)
        return process.returncode, out

    def __call__(self, command: str) -> str:
        """Runs a shell command that must succeed."""
        status, out = self.run(command)
        assert status == 0, (command, out)
        return out


def stop(process: subprocess.Popen[str]) -> None:
    """Ends a command and everything it has started."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.stdout is not None:
        process.stdout.close()


def until(what: str, condition: Callable[[], Any]) -> Any:
    """Waits for something to become true of another process."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


def fresh(root: Path) -> Environment:
    """Makes the environment and installs the scheduler, as a wheel made of this checkout."""
    venv.create(root / "venv", symlinks=True, with_pip=False)
    site = root / "venv" / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    # The folder only: a .pth file in it leads to the checkout.
    borrowed = sysconfig.get_path("purelib")
    (site / "site-packages" / "borrowed.pth").write_text(f"{borrowed}\n")
    scripts = root / "venv" / "bin"
    (scripts / "pip").write_text(f'#!/bin/sh\nexec "{scripts}/python" -m pip "$@"\n')
    (scripts / "pip").chmod(0o755)
    made = Environment(scripts, root / "work")
    made.directory.mkdir()
    made(f"pip install --quiet '{ROOT}' 2>&1")
    return made


# ---------------------------------------------------------------- transcripts


class Step(NamedTuple):
    """A command and what it is said to print: ``…`` stands for anything, alone on a line for any lines."""

    command: str
    expected: str

    @property
    def in_background(self) -> bool:
        return self.command.endswith(" &")

    def agrees(self, printed: str) -> bool:
        lines = []
        for line in self.expected.splitlines():
            words = [".*".join(map(re.escape, word.split("…"))) for word in line.split()]
            lines.append(r"(?:.*\n)*?" if line == "…" else r"\s*" + r"\s+".join(words) + r"\s*?\n")
        return (
            re.fullmatch("".join(lines), printed.rstrip("\n") + "\n" if printed else "") is not None
        )


def steps(transcripts: Iterable[str]) -> Iterator[Step]:
    """The commands of transcripts."""
    for text in transcripts:
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            yield Step(command, expected)
