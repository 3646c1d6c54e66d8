"""The release script, on a clone, with programs in the place of those that would publish."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

import release
from tests.helm.chart import ROOT, find_program

pytestmark = pytest.mark.whole

REGISTRY = "registry.example.com/scheduling"
PROGRAM = """\
#!/bin/sh
echo "$(basename "$0") $*" >> {log}
case "$(basename "$0") $1" in
"make sbom") cp {sbom} "${{2#DIST=}}/aiokube-scheduler.cdx.json";;
"cosign public-key") echo "public of $3" > "$5";;
"cosign sign-blob") sha256sum < "$7" > "$6";;
"cosign verify-blob") sha256sum < "$6" | cmp "$5" -;;
"helm package") exec {helm} "$@";;
esac
"""


def git(*arguments: str, cwd: Path) -> str:
    identity = {
        f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *arguments],
        cwd=cwd,
        env=os.environ | identity,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of this checkout, committed, with a bare repository as origin."""
    root, origin = tmp_path / "checkout", tmp_path / "origin"
    root.mkdir()
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/")):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, root / name)
    text = (root / "CHANGELOG.md").read_text()
    unreleased = text[text.index("## [Unreleased]") : text.index("## [0")]
    (root / "CHANGELOG.md").write_text(text.replace(unreleased, "## [Unreleased]\n\n"))
    git("init", "--quiet", "--bare", str(origin), cwd=tmp_path)
    git("init", "--quiet", cwd=root)
    git("remote", "add", "origin", str(origin), cwd=root)
    git("config", "user.name", "x", cwd=root)
    git("config", "user.email", "x", cwd=root)
    git("add", "--all", cwd=root)
    git("commit", "--quiet", "--message=all", cwd=root)
    monkeypatch.setattr(release, "ROOT", root)
    monkeypatch.setattr(release, "CHART", root / "helm" / "aiokube-scheduler")
    return root


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is called of docker, helm, make and twine."""
    helm = find_program()
    if helm is None:
        pytest.skip("there is no helm: 'make helm' builds it, with the Go toolchain")
    log, programs, sbom = tmp_path / "log", tmp_path / "programs", tmp_path / "sbom.json"
    log.touch()
    programs.mkdir()
    pins = re.findall(r"(?m)^([a-z0-9-]+)==([^ ;]+)", (ROOT / "requirements.lock").read_text())
    components = [{"name": name, "version": number} for name, number in pins]
    sbom.write_text(json.dumps({"bomFormat": "CycloneDX", "components": components}))
    for name in ("cosign", "docker", "helm", "make", "twine"):
        (programs / name).write_text(PROGRAM.format(log=log, helm=helm, sbom=sbom))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    return log


def made(out: Path, *flags: str) -> Result:
    return CliRunner().invoke(release.main, ["--registry", REGISTRY, "--out", str(out), *flags])


def test_a_dry_run_makes_the_files_and_publishes_nothing(
    checkout: Path, log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    result = made(out, "--offline")
    assert result.exit_code == 0, result.output
    number = release.version()
    wheel, sdist = (
        f"aiokube_scheduler-{number}-py3-none-any.whl",
        f"aiokube_scheduler-{number}.tar.gz",
    )
    chart = f"aiokube-scheduler-{number}.tgz"
    sums = dict(line.split()[::-1] for line in (out / "SHA256SUMS").read_text().splitlines())
    plugin = {f"kubectl-aiokube-{number}.tar.gz", "krew-aiokube.yaml"}
    assert sums.keys() == {wheel, sdist, chart, "provenance.json", *plugin}
    for name, digest in sums.items():
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    with tarfile.open(out / chart) as archive:
        found = archive.extractfile("aiokube-scheduler/values.yaml")
        assert found is not None
        image = yaml.safe_load(found)["image"]
        found = archive.extractfile("aiokube-scheduler/Chart.yaml")
        assert found is not None
        metadata = found.read().decode()
    assert f"image: {REGISTRY}/aiokube-scheduler:{number}" in metadata
    assert "Not signed: --key signs with cosign" in result.output
    assert image["repository"] == f"{REGISTRY}/aiokube-scheduler"
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["helm"]
    assert f"$ helm push {out / chart} oci://{REGISTRY}/charts\n" in result.output
    again = made(out, "--offline")
    assert (again.exit_code, again.output) == (1, f"Error: {out} is not empty\n")
    assert git("tag", cwd=checkout) == ""


def test_the_plugin_finds_a_program_and_krew_its_archive(
    checkout: Path, log: Path, tmp_path: Path
) -> None:
    out, number = tmp_path / "out", release.version()
    out.mkdir()
    release.make_plugin(out, "https://git.example.com/x", number)
    manifest = yaml.safe_load((out / "krew-aiokube.yaml").read_text())
    [platform] = manifest["spec"]["platforms"]
    archive = out / Path(platform["uri"]).name
    assert platform["uri"].startswith(f"https://git.example.com/x/releases/download/v{number}/")
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert len(manifest["spec"]["shortDescription"]) <= 50
    with tarfile.open(archive) as packed:
        assert sorted(packed.getnames()) == ["LICENSE", "kubectl-aiokube"]
        packed.extractall(tmp_path / "krew", filter="data")
    plugin, programs = tmp_path / "krew" / platform["bin"], tmp_path / "only"
    programs.mkdir()
    for name in ("sh", "dirname", "readlink"):
        (programs / name).symlink_to(str(shutil.which(name)))

    def run() -> subprocess.CompletedProcess[str]:
        command, path = [plugin, "why", "a b"], {"PATH": str(programs)}
        return subprocess.run(command, env=path, capture_output=True, text=True, check=False)

    failed = run()
    assert failed.returncode == 1
    assert f"Error: kubectl aiokube needs aiokube-scheduler=={number}" in failed.stderr
    for name in ("pipx", "uvx", "aiokube-scheduler"):
        (programs / name).write_text('#!/bin/sh\necho "${0##*/}" "$#" "$@"\n')
        (programs / name).chmod(0o755)
        if name == "pipx":
            said = f"pipx 6 run --spec aiokube-scheduler=={number} kubectl-aiokube why a b\n"
        else:
            said = f"uvx 5 --from aiokube-scheduler=={number} kubectl-aiokube why a b\n"
        assert run().stdout == said
    beside = programs / "kubectl-aiokube"
    shutil.copy2(programs / "uvx", beside)
    assert run().stdout == "kubectl-aiokube 2 why a b\n"


def test_a_release_is_published_in_order(
    checkout: Path, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    monkeypatch.setattr(release, "require_wheels", lambda: checked.append("wheels"))
    out = tmp_path / "out"
    result = made(out, "--publish", "--key=cosign.key", "--repository=https://git.example.com/x")
    assert result.exit_code == 0, result.output
    assert checked == ["wheels"]
    assert "The signature is confirmed by cosign" in result.output
    assert "aiokube-scheduler.cdx.json" in (out / "SHA256SUMS").read_text()
    called = [" ".join(line.split()[:2]) for line in log.read_text().splitlines()]
    assert called == [
        *("make sbom", "helm package", "cosign public-key", "cosign sign-blob"),
        *("cosign verify-blob", "docker buildx", "docker buildx", "helm push"),
        *(["cosign sign", "cosign verify"] * 3),
        "twine upload",
    ]
    number = release.version()
    for tag in (number, "v1.36.2", f"v1.36.2-aiokube{number}"):
        assert f"--tag={REGISTRY}/aiokube-scheduler:{tag} " in log.read_text()
    assert "--target=kube-scheduler" in log.read_text()
    assert "--platform=linux/amd64,linux/arm64 " in log.read_text()
    tag = f"v{release.version()}"
    assert git("tag", cwd=tmp_path / "origin") == f"{tag}\n"
    again = made(tmp_path / "again", "--publish", "--unsigned")
    assert again.exit_code == 1
    assert f"the tag {tag} exists" in again.output


def test_nothing_is_published_without_a_signature_by_accident(
    checkout: Path, log: Path, tmp_path: Path
) -> None:
    result = made(tmp_path / "out", "--publish")
    assert result.exit_code == 1
    assert "--publish needs --key, to sign with cosign, or --unsigned" in result.output
    assert log.read_text() == ""


def test_without_cosign_nothing_is_signed_and_it_says_so(
    checkout: Path, log: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert made(out, "--offline", "--key=cosign.key").exit_code == 0
    (tmp_path / "programs" / "cosign").unlink()
    result = made(tmp_path / "other", "--offline", "--key=cosign.key")
    assert (result.exit_code, result.output) == (
        1,
        "Error: --key needs cosign, which is not on the PATH\n",
    )
    checked = made(out, "--offline", "--check")
    assert (checked.exit_code, checked.output) == (
        0,
        "The signature is not checked: cosign is not on the PATH\n",
    )


def other_bytes(out: Path) -> str:
    (wheel,) = out.glob("*.whl")
    wheel.write_bytes(wheel.read_bytes() + b"x")
    return f"{wheel.name} is not the file that SHA256SUMS names"


def one_more(out: Path) -> str:
    (out / "more").touch()
    return "SHA256SUMS and the files differ: ['more']"


def other_plugin(out: Path) -> str:
    text = (out / "krew-aiokube.yaml").read_text()
    (out / "krew-aiokube.yaml").write_text(text.replace("version: v", "version: v9"))
    release.make_provenance(out, "https://git.example.com/x", release.version())
    release.make_checksums(out)
    return f"krew-aiokube.yaml is not about kubectl-aiokube-{release.version()}.tar.gz"


def other_sums(out: Path) -> str:
    other_bytes(out)
    release.make_checksums(out)
    return "provenance.json is not about these files"


def other_package(out: Path) -> str:
    sbom = out / "aiokube-scheduler.cdx.json"
    document = json.loads(sbom.read_text())
    gone = document["components"].pop(0)
    sbom.write_text(json.dumps(document))
    release.make_provenance(out, "https://git.example.com/x", release.version())
    release.make_checksums(out)
    return f"lacks {gone['name']}=={gone['version']}"


def other_signature(out: Path) -> str:
    with (out / "SHA256SUMS.sigstore.json").open("a") as file:
        file.write("x")
    return "cosign verify-blob"


@pytest.mark.parametrize(
    "spoil", [other_bytes, one_more, other_plugin, other_sums, other_package, other_signature]
)
def test_files_that_were_changed_are_found(
    checkout: Path,
    log: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], str],
) -> None:
    monkeypatch.setattr(release, "require_wheels", lambda: None)
    out = tmp_path / "out"
    assert made(out, "--key=cosign.key").exit_code == 0
    assert made(out, "--check").output == "The signature is confirmed by cosign\n"
    said = spoil(out)
    result = made(out, "--check")
    assert result.exit_code == 1
    assert said in result.output


def uncommitted(root: Path) -> str:
    (root / "new").touch()
    return "not committed:\n?? new"


def unreleased(root: Path) -> str:
    file = root / "CHANGELOG.md"
    file.write_text(
        file.read_text().replace("## [Unreleased]\n", "## [Unreleased]\n\n### Fixed\n", 1)
    )
    git("commit", "--quiet", "--all", "--message=more", cwd=root)
    return "CHANGELOG.md has lines under [Unreleased]"


def other_chart(root: Path) -> str:
    file = root / "helm" / "aiokube-scheduler" / "Chart.yaml"
    file.write_text(file.read_text().replace(f"\nversion: {release.version()}", "\nversion: 0.0.1"))
    return "but Chart.yaml, version is 0.0.1"


@pytest.mark.parametrize("spoil", [uncommitted, unreleased, other_chart])
def test_what_is_not_ready_is_refused(
    checkout: Path, log: Path, tmp_path: Path, spoil: Callable[[Path], str]
) -> None:
    said = spoil(checkout)
    result = made(tmp_path / "out", "--publish", "--unsigned")
    assert result.exit_code == 1
    assert said in result.output
    assert log.read_text() == ""
