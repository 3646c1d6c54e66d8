"""Makes a release: wheel, sdist, chart, SBOM and checksums, then the image; ``python release.py --help``.

Without ``--publish`` nothing leaves this machine: the files are made, and the commands that publish them are printed.
"""

import hashlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click
import yaml

ROOT: Final = Path(__file__).parent
NAME: Final = "aiokube-scheduler"
CHART: Final = ROOT / "helm" / NAME
#: Docker's names of the platforms of the image, and pip's.
PLATFORMS: Final = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}


class Refused(click.ClickException):
    """What is not fit for a release."""


def run(*command: str | Path) -> str:
    """What a command prints, started in the checkout. Raises Refused if it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603 - commands of this file
    except (OSError, subprocess.CalledProcessError) as error:
        raise Refused(f"{shlex.join(map(str, command))}: {error}") from error
    return done.stdout


# ---------------------------------------------------------------- what is checked


def version() -> str:
    """The version, which all files must agree on. Raises Refused."""
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    manifest = (ROOT / "config" / "manifests" / "second-scheduler.yaml").read_text()
    said: dict[str, Any] = {
        "Chart.yaml, version": chart["version"],
        "Chart.yaml, appVersion": chart["appVersion"],
        "config/manifests/second-scheduler.yaml, image": _first(rf"image: {NAME}:(\S+)", manifest),
        "CHANGELOG.md, the first version with a date": _first(
            r"(?m)^## \[([\d.]+)\] - \d{4}-\d\d-\d\d$", _changelog()
        ),
    }
    if wrong := [f"{where} is {other}" for where, other in said.items() if other != found]:
        raise Refused(f"pyproject.toml has version {found}, but {'; '.join(wrong)}")
    return found


def _first(pattern: str, text: str) -> str | None:
    match = re.search(pattern, text)
    return match[1] if match else None


def require_ready(tag: str) -> None:
    """Raises Refused for changes that are not committed or not of a version, and for a tag that exists."""
    if changed := run("git", "status", "--porcelain"):
        raise Refused(f"not committed:\n{changed}")
    if run("git", "tag", "--list", tag):
        raise Refused(f"the tag {tag} exists: a released version is not released again")
    if re.search(r"(?m)^## \[Unreleased\]\n+[^#\n]|^## \[Unreleased\]\n+###", _changelog()):
        raise Refused("CHANGELOG.md has lines under [Unreleased]: move them to a version")


def _changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text()


def require_wheels() -> None:
    """Raises Refused unless the index has a wheel of each locked package for each platform of the image."""
    (python,) = set(
        re.findall(r"^FROM python:(3\.\d+)-", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    )
    for machine in PLATFORMS.values():
        tags = [f"--platform={abi}_{machine}" for abi in ("manylinux_2_28", "manylinux2014")]
        with tempfile.TemporaryDirectory() as nothing:
            run(
                *(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"),
                *("--ignore-installed", "--no-deps", "--require-hashes", "--only-binary=:all:"),
                *(f"--target={nothing}", "--implementation=cp", f"--python-version={python}"),
                *(*tags, "--requirement", "requirements.lock"),
            )


# ---------------------------------------------------------------- what is made


def make_packages(out: Path) -> None:
    """The wheel and the sdist."""
    run(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", out)


def make_chart(out: Path, registry: str) -> None:
    """The chart's package; its default image is that of the registry."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / NAME
        shutil.copytree(CHART, chart)
        values = chart / "values.yaml"
        before, after = f"repository: {NAME}\n", f"repository: {registry}/{NAME}\n"
        text = values.read_text()
        if text.count(before) != 1:
            raise Refused(f"values.yaml should have one line {before!r}")
        values.write_text(text.replace(before, after))
        run("helm", "package", "--destination", out, chart)


def make_checksums(out: Path) -> None:
    """SHA256SUMS, for ``sha256sum --check``."""
    files = sorted(file for file in out.iterdir() if file.name != "SHA256SUMS")
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (out / "SHA256SUMS").write_text("".join(lines))


def publication(out: Path, registry: str, number: str) -> Iterator[list[str]]:
    """The commands that publish, in this order: what can be repeated comes first."""
    image, minor = f"{registry}/{NAME}", number.rpartition(".")[0]
    yield [
        *("docker", "buildx", "build", f"--platform={','.join(PLATFORMS)}", "--push"),
        *("--provenance=true", "--sbom=true", f"--tag={image}:{number}", f"--tag={image}:{minor}"),
        ".",
    ]
    yield ["helm", "push", f"{out / f'{NAME}-{number}.tgz'}", f"oci://{registry}/charts"]
    packages = sorted(map(str, (*out.glob("*.whl"), *out.glob("*.tar.gz"))))
    yield ["twine", "upload", *packages]
    yield ["git", "tag", "--annotate", f"--message={NAME} {number}", f"v{number}"]
    yield ["git", "push", "origin", f"v{number}"]


@click.command()
@click.option("--registry", required=True, help="Where image and chart go: HOST/PATH.")
@click.option("--out", type=click.Path(path_type=Path), default=ROOT / "dist", show_default=True)
@click.option(
    "--offline", is_flag=True, help="Omit what needs the index: the SBOM, and the check of wheels."
)
@click.option(
    "--publish", is_flag=True, help="Run the commands that publish instead of printing them."
)
def main(registry: str, out: Path, *, offline: bool, publish: bool) -> None:
    """Make a release of this checkout."""
    number = version()
    if publish and offline:
        raise Refused("--publish needs the SBOM and the check of wheels, which --offline omits")
    if publish:
        require_ready(f"v{number}")
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise Refused(f"{out} is not empty")
    if not offline:
        require_wheels()
        run("make", "sbom", f"DIST={out.resolve()}")
    make_packages(out)
    make_chart(out, registry)
    make_checksums(out)
    click.echo((out / "SHA256SUMS").read_text(), nl=False)
    for command in publication(out, registry, number):
        click.echo(f"$ {shlex.join(command)}")
        if publish:
            run(*command)


if __name__ == "__main__":
    main()
