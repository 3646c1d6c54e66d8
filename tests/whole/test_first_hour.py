"""The first hour of a new user: the installed command, in a folder with modules of its own, and what the demo says to
try.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.markdown import ROOT
from tests.whole.harness import WAIT_SECONDS, wait_for
from tests.whole.kubectl import NEEDS_KUBECTL, Kubectl

pytestmark = pytest.mark.whole

COMMAND = Path(sys.executable).with_name("aiokube-scheduler")
EXAMPLES = ROOT / "docs" / "examples"
INTRUDER = "open({!r}, 'w').close()\nprint('a module of the user', __name__)\n"


def users_folder(folder: Path) -> Path:
    """A folder with modules that have the names of ours; whoever imports one leaves ``imported`` there."""
    intruder = INTRUDER.format(str(folder / "imported"))
    for name in ("app", "extenders", "click", "aiohttp"):
        (folder / f"{name}.py").write_text(intruder)
    for name in ("app", "extenders"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(intruder)
    return folder


def environment(kubeconfig: Path) -> dict[str, str]:
    return os.environ | {
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(kubeconfig.parent),
        "COLUMNS": "200",
    }


class Playground:
    """``demo --keep``, started in the user's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = users_folder(folder)
        self._log = folder / "demo.log"
        command = [COMMAND, "demo", "--nodes=6", "--pods=60", "--keep"]
        with self._log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)

    def wait(self) -> None:
        """Returns when it says what to try."""
        wait_for("what to try", lambda: "The scheduler's log is" in self.said() or self._ended())

    def _ended(self) -> bool:
        assert self.process.poll() is None, self.said()
        return False

    def said(self) -> str:
        return self._log.read_text()

    def lines(self) -> list[str]:
        """The commands that it says to try."""
        return re.findall(
            r"^    (\S.*)$", self.said().partition("Try in another terminal")[2], re.MULTILINE
        )

    @property
    def kubeconfig(self) -> Path:
        (found,) = re.findall(r"^    export KUBECONFIG=(\S+)$", self.said(), re.MULTILINE)
        return Path(found)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Our command, in the user's folder."""
        return subprocess.run(
            [COMMAND, *arguments],
            cwd=self.folder,
            env=environment(self.kubeconfig),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    demo = Playground(tmp_path_factory.mktemp("users"))
    try:
        demo.wait()
        yield demo
        demo.process.send_signal(signal.SIGINT)
        assert demo.process.wait(WAIT_SECONDS) == 0, demo.said()
        assert "Traceback" not in demo.said()
    finally:
        demo.process.kill()
        demo.process.wait()


@pytest.fixture
def kubectl(demo: Playground, tmp_path: Path) -> Kubectl:
    return Kubectl(demo.kubeconfig, tmp_path)


def test_modules_of_the_user_are_left_alone(demo: Playground) -> None:
    assert not (demo.folder / "imported").exists()


def test_what_the_demo_says_to_try_works(demo: Playground) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH")
    lines = demo.lines()
    assert len(lines) >= 5
    script = "\n".join(["set -e -x", f"PATH={COMMAND.parent}:$PATH", *lines])
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=demo.folder,
        env=os.environ | {"HOME": str(demo.folder)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "drained" in done.stdout
    assert "licences of zone-" in done.stdout  # what the extender said of the pod
    assert not (demo.folder / "imported").exists()


@NEEDS_KUBECTL
def test_pods_of_the_demo_run(demo: Playground, kubectl: Kubectl) -> None:
    def waiting() -> set[str]:
        phases = kubectl.json("get", "pods", "--selector=app=web")["items"]
        return {item["status"]["phase"] for item in phases}

    wait_for("the pods to run", lambda: waiting() <= {"Running"})


@NEEDS_KUBECTL
def test_a_pod_of_anybody_runs_and_goes(demo: Playground, kubectl: Kubectl) -> None:
    kubectl("run", "anybodys", "--image=nginx")
    kubectl("wait", "--for=condition=Ready", "pod/anybodys", "--timeout=30s")
    assert "anybodys" in kubectl("delete", "pod", "anybodys", "--timeout=30s")
    assert kubectl.run("get", "pod", "anybodys").code == 1


def test_explain_finds_the_scheduler_of_the_demo_by_itself(demo: Playground) -> None:
    done = demo.run("explain", "default/huge-000", "-o", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["leadership"]["leading"]
    assert told["place"] == "unschedulable"


@NEEDS_KUBECTL
def test_the_examples_of_the_readme(demo: Playground, kubectl: Kubectl, tmp_path: Path) -> None:
    kubectl("create", "-f", str(EXAMPLES / "pods.yaml"))
    kubectl("wait", "--for=condition=Ready", "pod/placed", "--timeout=30s")
    assert demo.run("explain", "default/gated", "-o", "json").stdout.count('"gated"') >= 1
    done = demo.run("simulate", "--nodes=6", "--node-cpu=4", f"--workload={EXAMPLES / 'shop.yaml'}")
    assert done.returncode == 0, done.stdout + done.stderr


@NEEDS_KUBECTL
def test_preemptor_and_victim_tell_of_each_other(demo: Playground, kubectl: Kubectl) -> None:
    container = {
        "name": "main",
        "image": "nginx",
        "resources": {"requests": {"cpu": "15"}},
    }
    spec = {
        "priorityClassName": "demo-critical",
        "nodeSelector": {"kubernetes.io/hostname": "node-1"},
        "containers": [container],
    }
    vip = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "vip"}, "spec": spec}
    kubectl.apply(vip)
    kubectl("wait", "--for=condition=PodScheduled", "pod/vip", "--timeout=60s")
    story = json.loads(demo.run("explain", "default/vip", "-o", "json").stdout)
    made_room = [attempt for attempt in story["attempts"] if attempt["victims"]]
    victim = made_room[0]["victimPods"][0]
    said = " ".join(demo.run("explain", "default/vip").stdout.split())
    assert re.search(rf"Room is made on node-1 by evicting \d+ pods?: .*{victim}", said)
    assert re.search(r"preempted +by default/vip on node-1, ", demo.run("explain", victim).stdout)
    kubectl("delete", "pod", "vip", "--timeout=30s")


def test_explain_says_that_there_is_no_such_pod(demo: Playground) -> None:
    done = demo.run("explain", "default/none")
    assert done.returncode == 1
    assert 'pods "none" not found in namespace "default"' in done.stderr


def test_simulate_beside_modules_of_the_user(tmp_path: Path) -> None:
    folder = users_folder(tmp_path)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    (folder / "pod.json").write_text(json.dumps(pod))
    done = subprocess.run(
        [COMMAND, "simulate", "--nodes=2", "--workload=pod.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=2 * WAIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (folder / "imported").exists()
