"""The image's build stage without a container: the same steps, in a clean folder, make a program that starts."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.shell.test_packaging import ROOT, copied, of

pytestmark = [pytest.mark.whole, pytest.mark.timeout(400)]

#: Of what is added to the base. It had 213 when this was written, 58 of them compiled modules.
LARGEST_MB = 250
OFFLINE = re.compile(r"Retrying \(Retry|\(from versions: none\)|Max retries exceeded")


def run(command: list[Path | str], folder: Path, seconds: float = 380) -> str:
    """What a command says that must succeed."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": os.environ["HOME"],
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
    }
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode and OFFLINE.search(said) and not os.environ.get("CI"):
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, (command, said)
    return done.stdout


def test_the_steps_of_the_dockerfile_make_a_program_that_starts(tmp_path: Path) -> None:
    source, image = tmp_path / "src", tmp_path / "opt" / "aiokube-scheduler"
    source.mkdir()
    for name in copied():
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    base = tmp_path / "base"
    run([sys.executable, "-m", "venv", base], tmp_path)
    for step in of("RUN"):
        program, *words = step.words
        places = {"/opt/aiokube-scheduler": str(image), "/wheels": str(tmp_path / "wheels")}
        for place, here in places.items():
            words = [word.replace(place, here) for word in words]
        run([base / "bin" / program, *words], source)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    program = image / "bin" / "aiokube-scheduler"
    assert run([program, "version"], tmp_path).startswith(f"aiokube-scheduler {version} ")
    assert "Where the pods went" in run([program, "demo", "--nodes=6", "--pods=30"], tmp_path)
    assert not list(image.glob("lib/python*/site-packages/pip"))
    files = [file.stat().st_size for file in image.rglob("*") if file.is_file()]
    assert sum(files) < LARGEST_MB * 1_000_000
