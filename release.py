"""Makes a release: wheel, sdist, chart, plugin of kubectl, SBOM, provenance, checksums and their signature, then
images; ``python release.py --help``.

Without ``--publish`` nothing leaves this machine: the files are made, and the commands that publish them are printed.
``--check`` checks the files of a release: checksums, SBOM, provenance and signature.
"""

import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import yaml

ROOT: Final = Path(__file__).parent
NAME: Final = "aiokube-scheduler"
CHART: Final = ROOT / "helm" / NAME
#: Docker's names of the platforms of the image, and pip's.
PLATFORMS: Final = {"linux/amd64": "x86_64", "linux/arm64": "aarch64"}
#: The kube-scheduler whose decisions these are, in tags of images: installers read the version of Kubernetes there.
KUBERNETES: Final = "1.36.2"
SBOM: Final = f"{NAME}.cdx.json"
PROVENANCE: Final = "provenance.json"
PLUGIN: Final = "kubectl-aiokube"
KREW: Final = "krew-aiokube.yaml"
SUMS: Final = "SHA256SUMS"
SIGNATURE: Final = f"{SUMS}.sigstore.json"
PUBLIC_KEY: Final = "cosign.pub"
#: Files that others are about.
_ABOUT: Final = frozenset({SUMS, SIGNATURE, PUBLIC_KEY})
_REPOSITORY: Final = "https://example.com/aiokube-scheduler"
_REGISTRY: Final = "registry.example.com/aiokube"


class Refused(click.ClickException):
    """What is not fit for a release."""


def run(*command: str | Path) -> str:
    """What a command prints, started in the checkout. Raises Refused if it fails."""
    try:
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
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


def make_chart(out: Path, registry: str, repository: str) -> None:
    """The chart's package; its default image is that of the registry, its metadata lead to the repository."""
    with tempfile.TemporaryDirectory() as folder:
        chart = Path(folder) / NAME
        shutil.copytree(CHART, chart)
        values = chart / "values.yaml"
        before, after = f"repository: {NAME}\n", f"repository: {registry}/{NAME}\n"
        text = values.read_text()
        if text.count(before) != 1:
            raise Refused(f"values.yaml should have one line {before!r}")
        values.write_text(text.replace(before, after))
        metadata = chart / "Chart.yaml"
        text = metadata.read_text().replace(_REPOSITORY, repository)
        metadata.write_text(text.replace(f"{_REGISTRY}/{NAME}", f"{registry}/{NAME}"))
        run("helm", "package", "--destination", out, chart)


def make_plugin(out: Path, repository: str, number: str) -> None:
    """kubectl's plugin as krew installs it: the archive, and the manifest for krew's index."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / PLUGIN
        text = (ROOT / "config" / PLUGIN).read_text()
        script.write_text(text.replace("@VERSION@", number))
        script.chmod(0o755)
        archive = out / f"{PLUGIN}-{number}.tar.gz"
        with tarfile.open(archive, "w:gz") as packed:
            for file in (script, ROOT / "LICENSE"):
                packed.add(file, file.name, filter=_plain)
    platform = {
        "selector": {
            "matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]
        },
        "uri": f"{repository}/releases/download/v{number}/{archive.name}",
        "sha256": _digest(archive),
        "bin": PLUGIN,
    }
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "aiokube"},
        "spec": {
            "version": f"v{number}",
            "homepage": repository,
            "shortDescription": "Say why pods are pending",
            "description": "Asks a running aiokube-scheduler why pods are pending, what extenders answered, "
            "and what it does.\n",
            "caveats": "It needs aiokube-scheduler on the PATH, or uv or pipx to fetch it.\n",
            "platforms": [platform],
        },
    }
    (out / KREW).write_text(yaml.safe_dump(manifest, sort_keys=False))


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without the user, group and time of this machine."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return member


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _subjects(out: Path) -> dict[str, str]:
    """The files of the release that the provenance is about: name -> SHA-256."""
    files = sorted(file for file in out.iterdir() if file.name not in _ABOUT | {PROVENANCE})
    return {file.name: _digest(file) for file in files}


def make_provenance(out: Path, repository: str, number: str) -> None:
    """An in-toto statement with SLSA's provenance: which files this commit made."""
    commit = run("git", "rev-parse", "HEAD").strip()
    source = {"uri": f"git+{repository}", "digest": {"gitCommit": commit}}
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [
            {"name": name, "digest": {"sha256": digest}} for name, digest in _subjects(out).items()
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{repository}/blob/main/release.py",
                "externalParameters": {"version": number},
                "resolvedDependencies": [source],
            },
            "runDetails": {"builder": {"id": f"{repository}/blob/main/release.py"}},
        },
    }
    (out / PROVENANCE).write_text(json.dumps(statement, indent=2) + "\n")


def make_checksums(out: Path) -> None:
    """SHA256SUMS, for ``sha256sum --check``."""
    files = sorted(file for file in out.iterdir() if file.name not in _ABOUT)
    lines = [f"{_digest(file)}  {file.name}\n" for file in files]
    (out / SUMS).write_text("".join(lines))


def sign(out: Path, key: str) -> None:
    """Signs the checksums, and with them all files; the public key comes to the files."""
    run("cosign", "public-key", "--key", key, "--outfile", out / PUBLIC_KEY)
    command = ("cosign", "sign-blob", "--yes", "--key", key, "--bundle", out / SIGNATURE)
    run(*command, out / SUMS)


# ---------------------------------------------------------------- what is checked again


class Release(NamedTuple):
    """The files of a release, as somebody has them who has downloaded them."""

    folder: Path

    def check(self, number: str, *, sbom: bool) -> None:
        """Checksums, provenance, plugin and SBOM. Raises Refused."""
        self._check_sums()
        self._check_provenance(number)
        self._check_plugin(number)
        if sbom:
            self._check_sbom()

    def check_signature(self, key: Path) -> None:
        """Raises Refused unless the checksums are signed with the key."""
        command = ("cosign", "verify-blob", "--key", key, "--bundle", self.folder / SIGNATURE)
        run(*command, self.folder / SUMS)

    def _check_sums(self) -> None:
        sums = dict(line.split()[::-1] for line in (self.folder / SUMS).read_text().splitlines())
        there = {file.name for file in self.folder.iterdir() if file.name not in _ABOUT}
        if sums.keys() != there:
            raise Refused(f"{SUMS} and the files differ: {sorted(sums.keys() ^ there)}")
        for name, digest in sums.items():
            if _digest(self.folder / name) != digest:
                raise Refused(f"{name} is not the file that {SUMS} names")

    def _check_provenance(self, number: str) -> None:
        statement = json.loads((self.folder / PROVENANCE).read_text())
        named = {each["name"]: each["digest"]["sha256"] for each in statement["subject"]}
        if named != _subjects(self.folder):
            raise Refused(f"{PROVENANCE} is not about these files")
        made = statement["predicate"]["buildDefinition"]
        if made["externalParameters"]["version"] != number:
            raise Refused(f"{PROVENANCE} is of another version")

    def _check_plugin(self, number: str) -> None:
        plugin = yaml.safe_load((self.folder / KREW).read_text())["spec"]
        archive = self.folder / f"{PLUGIN}-{number}.tar.gz"
        sums = {each["sha256"] for each in plugin["platforms"]}
        if plugin["version"] != f"v{number}" or sums != {_digest(archive)}:
            raise Refused(f"{KREW} is not about {archive.name}")

    def _check_sbom(self) -> None:
        document = json.loads((self.folder / SBOM).read_text())
        found = {(each["name"], each["version"]) for each in document.get("components", ())}
        pins = re.findall(
            r"(?m)^([a-z0-9-]+)==([^\s;\\]+)", (ROOT / "requirements.lock").read_text()
        )
        if missing := sorted(set(pins) - found):
            raise Refused(f"{SBOM} lacks {', '.join('=='.join(each) for each in missing)}")


# ---------------------------------------------------------------- what is published


def images(registry: str, number: str) -> dict[str, list[str]]:
    """The stages of the Dockerfile that become images, with their tags; the last stage has no name."""
    image, minor = f"{registry}/{NAME}", number.rpartition(".")[0]
    drop_in = [f"v{KUBERNETES}", f"v{KUBERNETES}-aiokube{number}"]
    return {
        "": [f"{image}:{tag}" for tag in (number, minor)],
        "kube-scheduler": [f"{image}:{tag}" for tag in drop_in],
    }


def publication(out: Path, registry: str, number: str, key: str = "") -> Iterator[list[str]]:
    """The commands that publish, in this order: what can be repeated comes first."""
    for stage, tags in images(registry, number).items():
        yield [
            *("docker", "buildx", "build", f"--platform={','.join(PLATFORMS)}", "--push"),
            *("--provenance=true", "--sbom=true", *(f"--tag={tag}" for tag in tags)),
            *([f"--target={stage}"] if stage else []),
            ".",
        ]
    yield ["helm", "push", f"{out / f'{NAME}-{number}.tgz'}", f"oci://{registry}/charts"]
    if key:
        published = [tags[-1] for tags in images(registry, number).values()]
        for reference in (*published, f"{registry}/charts/{NAME}:{number}"):
            yield ["cosign", "sign", "--yes", "--recursive", "--key", key, reference]
            yield ["cosign", "verify", "--key", str(out / PUBLIC_KEY), reference]
    packages = sorted(map(str, (*out.glob("*.whl"), *out.glob("aiokube_scheduler-*.tar.gz"))))
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
    "--repository", default=_REPOSITORY, show_default=True, help="Where the sources are: a URL."
)
@click.option("--key", default="", help="Sign with this key of cosign: a file, or that of a KMS.")
@click.option("--unsigned", is_flag=True, help="Publish without a signature.")
@click.option("--check", is_flag=True, help="Check the files in --out, with cosign.pub there.")
@click.option(
    "--publish", is_flag=True, help="Run the commands that publish instead of printing them."
)
def main(
    registry: str,
    out: Path,
    repository: str,
    key: str,
    *,
    offline: bool,
    unsigned: bool,
    check: bool,
    publish: bool,
) -> None:
    """Make a release of this checkout."""
    number = version()
    if check:
        Release(out).check(number, sbom=not offline)
        _check_signature(out)
        return
    if publish and offline:
        raise Refused("--publish needs the SBOM and the check of wheels, which --offline omits")
    if publish and not key and not unsigned:
        raise Refused("--publish needs --key, to sign with cosign, or --unsigned")
    if key and shutil.which("cosign") is None:
        raise Refused("--key needs cosign, which is not on the PATH")
    if publish:
        require_ready(f"v{number}")
    _make(out, registry, repository, key, number, offline=offline)
    for command in publication(out, registry, number, key):
        click.echo(f"$ {shlex.join(command)}")
        if publish:
            run(*command)


def _make(
    out: Path, registry: str, repository: str, key: str, number: str, *, offline: bool
) -> None:
    """The files, checked again when they are all there."""
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        raise Refused(f"{out} is not empty")
    if not offline:
        require_wheels()
        run("make", "sbom", f"DIST={out.resolve()}")
    make_packages(out)
    make_chart(out, registry, repository)
    make_plugin(out, repository, number)
    make_provenance(out, repository, number)
    make_checksums(out)
    if key:
        sign(out, key)
    Release(out).check(number, sbom=not offline)
    click.echo((out / SUMS).read_text(), nl=False)
    _check_signature(out)


def _check_signature(out: Path) -> None:
    """Says whether there is a signature that cosign confirms. Raises Refused for one that it does not."""
    if not (out / SIGNATURE).exists():
        click.echo("Not signed: --key signs with cosign")
    elif shutil.which("cosign") is None:
        click.echo("The signature is not checked: cosign is not on the PATH")
    else:
        Release(out).check_signature(out / PUBLIC_KEY)
        click.echo("The signature is confirmed by cosign")


if __name__ == "__main__":
    main()
