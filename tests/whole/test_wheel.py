"""The wheel in an environment with packages of the same names as our folders, and in a folder with such modules."""

import json
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.tools.subprocesses import reserved_port
from tests.markdown import ROOT
from tests.whole.installed import Environment, fresh, stop, until

pytestmark = pytest.mark.whole

INTRUDER = "open({!r}, 'w').close()\nprint('a module of the user', __name__)\n"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: big}
spec: {containers: [{name: main, image: busybox, resources: {requests: {cpu: "64"}}}]}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """A module of the user that is imported makes the file ``imported``, which is an error at the end."""
    made = fresh(tmp_path_factory.mktemp("wheel"))
    imported = made.directory / "imported"
    (site,) = (made.scripts.parent / "lib").glob("python*/site-packages")
    for folder in (site, made.directory):
        for name in ("app", "extenders"):
            (folder / f"{name}.py").write_text(INTRUDER.format(str(imported)))
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(INTRUDER.format(str(imported)))
    (made.directory / "aiokube_scheduler.py").write_text(INTRUDER.format(str(imported)))
    (made.directory / "pod.yaml").write_text(POD)
    yield made
    assert not imported.exists()


@contextmanager
def running(environment: Environment, command: str, says: str) -> Iterator[None]:
    """A command in the background, once it has printed something; it must end well."""
    log = environment.directory / f"{command.split()[1]}.log"
    log.touch()
    process = environment.start(f"exec {command} > {shlex.quote(str(log))} 2>&1")
    try:
        until(says, lambda: says in log.read_text() or died(process, log))
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    finally:
        stop(process)


def died(process: subprocess.Popen[str], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    return False


def test_demo(environment: Environment) -> None:
    said = environment("aiokube-scheduler demo --nodes 6 --pods 30")
    assert "What the extender rejected" in said
    assert "Where the pods went" in said


def test_simulate(environment: Environment) -> None:
    shop = ROOT / "docs" / "examples" / "shop.yaml"
    said = environment(f"aiokube-scheduler simulate --nodes 6 --node-cpu 4 --workload '{shop}'")
    assert "node-5" in said


def test_explain(environment: Environment) -> None:
    cluster = (
        "aiokube-scheduler apiserver --port 0 --nodes 2 --kubeconfig-out config --load pod.yaml"
    )
    scheduler = "aiokube-scheduler run --kubeconfig config --bind-address 127.0.0.1 --secure-port"
    with (
        reserved_port() as port,
        running(environment, cluster, "listening on "),
        running(environment, f"{scheduler} {port}", "Successfully acquired lease"),
    ):
        explained = "KUBECONFIG=config aiokube-scheduler explain big -o json"
        story = until("a story", lambda: told(environment, explained))
    assert story["place"] == "unschedulable"


def told(environment: Environment, command: str) -> dict[str, object] | None:
    """The story of the pod once it has been tried."""
    status, said = environment.run(command)
    if status and "lease" in said:
        return None  # it names the endpoint a moment after it was acquired
    assert status == 0, said
    story: dict[str, object] = json.loads(said)
    return story if story["place"] == "unschedulable" else None


def test_it_runs_as_a_module(environment: Environment) -> None:
    assert environment("python -P -m aiokube_scheduler version").startswith("aiokube-scheduler 0.")
    sample = "python -P -m aiokube_scheduler.extenders.python.seats --help"
    assert sample.partition("-m ")[2].partition(" --")[0] in environment(sample)
