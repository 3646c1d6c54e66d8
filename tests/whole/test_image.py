"""The image's build stage without a container: the same steps, in a clean folder, make programs that start."""

import os
import re
import shutil
import ssl
import stat
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from app.tools.subprocesses import reserved_port
from tests.shell.test_packaging import ROOT, copied, of
from tests.whole.harness import Cluster, running_cluster, wait_for

pytestmark = [pytest.mark.whole, pytest.mark.timeout(400)]

#: Of what is added to the base, and what the debug information of extension modules has of it, which strip removes.
LARGEST_MB = 150
DEBUG_MB = 40
OFFLINE = re.compile(r"Retrying \(Retry|\(from versions: none\)|Max retries exceeded")
#: A user without a name, as Talos runs it: 65536 inside, and nobody's rights; the tree is its own, but read-only.
NAMELESS = ["unshare", "--user", "--map-user=65536", "--map-group=65536", "--"]


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


@pytest.fixture(scope="module")
def image() -> Iterator[Path]:
    """What the image has at /opt/aiokube-scheduler, read-only, made by the steps of the Dockerfile."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        source, tree = folder / "src", folder / "opt" / "aiokube-scheduler"
        source.mkdir()
        for name in copied():
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / name)
        base = folder / "base"
        run([sys.executable, "-m", "venv", base], folder)
        for step in of("RUN"):
            program, *words = step.words
            if program == "apt-get":
                continue  # packages of the base: this machine has them or not
            places = {"/opt/aiokube-scheduler": str(tree), "/wheels": str(folder / "wheels")}
            for place, here in places.items():
                words = [word.replace(place, here) for word in words]
            run([base / "bin" / program, *words], source)
        directories = [tree, *(each for each in tree.rglob("*") if each.is_dir())]
        for each in directories:
            each.chmod(0o555)
        yield tree
        for each in directories:
            each.chmod(0o755)


def as_nobody(*command: Path | str) -> list[str]:
    """The command as a user without a name, where this machine lets us."""
    probe = [*NAMELESS, "true"]
    can = (
        shutil.which(NAMELESS[0])
        and not subprocess.run(probe, capture_output=True, timeout=20, check=False).returncode
    )
    return [*(NAMELESS if can else []), *map(str, command)]


def test_the_steps_of_the_dockerfile_make_a_program_that_starts(
    image: Path, tmp_path: Path
) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    program = image / "bin" / "aiokube-scheduler"
    assert run([program, "version"], tmp_path).startswith(f"aiokube-scheduler {version} ")
    assert "Where the pods went" in run([program, "demo", "--nodes=6", "--pods=30"], tmp_path)
    assert not list(image.glob("lib/python*/site-packages/pip"))


def test_only_what_runs_is_in_it(image: Path) -> None:
    (site,) = image.glob("lib/python*/site-packages")
    assert {each.name for each in (image / "bin").iterdir() if "python" not in each.name} == {
        "aiokube-scheduler",
        "kube-scheduler",
    }
    assert not [each for each in site.rglob("tests") if each.is_dir()]
    assert not list(site.rglob("*.pyi"))
    assert not (site / "setuptools").exists()
    zipped = (
        "kubernetes_asyncio.config.kube_config",
        "kubernetes_asyncio.client.models",
        "rich.syntax",
    )
    for module in zipped:
        run([image / "bin" / "python", "-W", "error", "-c", f"import {module}"], site)


def test_it_is_small(image: Path) -> None:
    files = [
        each.lstat().st_size for each in image.rglob("*") if not stat.S_ISLNK(each.lstat().st_mode)
    ]
    size = sum(files) / 1e6
    if shutil.which("strip") is None:
        assert size < LARGEST_MB + DEBUG_MB
        pytest.skip(
            f"no strip here: with debug information it has {size:.0f} MB, which is less than {LARGEST_MB + DEBUG_MB}"
        )
    assert size < LARGEST_MB


def test_extension_modules_have_no_debug_information_and_load(image: Path, tmp_path: Path) -> None:
    (site,) = image.glob("lib/python*/site-packages")
    modules = [
        each for each in site.rglob("*.so") if not each.relative_to(site).parts[0].endswith(".libs")
    ]
    assert len(modules) > 20
    if shutil.which("strip") is not None:
        assert not [each for each in modules if b"\0.debug_info\0" in each.read_bytes()]
    names = [
        ".".join((*each.relative_to(site).parent.parts, each.name.partition(".")[0]))
        for each in modules
    ]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)"
    run([image / "bin" / "python", "-c", code, *names], tmp_path)


def test_plugins_may_lie_beside_it(image: Path, tmp_path: Path) -> None:
    """As docs/examples/gpu/Dockerfile puts them there."""
    package, plugins = ROOT / "docs" / "examples" / "gpu", tmp_path / "plugins"
    source = shutil.copytree(package, tmp_path / "source")
    pip = image.parents[1] / "base" / "bin" / "pip"
    run(
        [pip, "install", "--no-deps", "--no-build-isolation", "--target", plugins, source], tmp_path
    )
    command = [image / "bin" / "aiokube-scheduler", "check-config", package / "scheduler.yaml"]
    without = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert without.returncode == 1
    assert "GpuSharing" in without.stdout + without.stderr
    run(["env", f"PYTHONPATH={plugins}", *command], tmp_path)


def test_kube_scheduler_runs_as_a_static_pod_writes_it(image: Path, tmp_path: Path) -> None:
    program = image / "bin" / "kube-scheduler"
    with running_cluster(tmp_path, "--nodes=2") as cluster, reserved_port() as port:
        command = as_nobody(
            program,
            f"--authentication-kubeconfig={cluster.kubeconfig}",
            f"--authorization-kubeconfig={cluster.kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--config={config(tmp_path, cluster)}",
            f"--kubeconfig={cluster.kubeconfig}",
            "--leader-elect=true",
            "--tls-min-version=VersionTLS13",
            f"--secure-port={port}",
        )
        log = tmp_path / "scheduler.log"
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd="/", env={}, stdout=out, stderr=out)
        try:
            cluster.create_pods(3)
            wait_for("bound pods", lambda: cluster.all_bound(3) or died(process, log))
            for path in ("/healthz", "/livez", "/readyz"):
                wait_for(path, lambda path=path: probed(port, path) == "ok")
            process.terminate()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
        assert "Traceback" not in log.read_text()


def config(folder: Path, cluster: Cluster) -> Path:
    file = folder / "config.yaml"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
    }
    file.write_text(yaml.safe_dump(document))
    return file


def died(process: "subprocess.Popen[bytes]", log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    return False


def probed(port: int, path: str) -> str:
    """What a probe gets: a kubelet trusts any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        url = f"https://localhost:{port}{path}"
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return answer.read().decode()
    except OSError as error:
        return str(error)
