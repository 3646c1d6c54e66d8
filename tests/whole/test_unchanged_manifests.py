"""Manifests that run kube-scheduler, with only the image changed: their command, user, mounts and probes against a
cluster.

A kubelet's part is played here. Absolute paths lead to a folder of the test, and the port is a free one; nothing else
of the manifests is changed. In place of a service account there is KUBERNETES_MASTER, which kube-scheduler reads as
well.
"""

import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from aiohttp import web

from app.tools.subprocesses import reserved_port
from extenders.kit.testing import serving
from tests.helm.kubernetes_schema import mistakes
from tests.shell.kube.servers import Authority
from tests.whole.harness import Cluster, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole

FOLDER = Path(__file__).parents[1] / "manifests" / "schedulers"
NAMES = sorted(file.stem for file in FOLDER.glob("*.yaml"))
KUBECONFIG = re.compile(r"--(?:\w+-)?kubeconfig=(.*)")
SCHEDULER = "kubescheduler.config.k8s.io/"


class Manifest:
    """One of the files: the pod, its first container, and the files that it mounts."""

    def __init__(self, name: str) -> None:
        self.documents = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
        workload = self.documents[0]
        self.namespace: str = workload["metadata"]["namespace"]
        template = workload if workload["kind"] == "Pod" else workload["spec"]["template"]
        self.spec: dict[str, Any] = template["spec"]
        self.container: dict[str, Any] = self.spec["containers"][0]
        self.mounts = {each["name"]: each["mountPath"] for each in self.container["volumeMounts"]}

    @property
    def user(self) -> int | None:
        """None for the image's own, which is root."""
        contexts = (self.container.get("securityContext", {}), self.spec.get("securityContext", {}))
        return next((each["runAsUser"] for each in contexts if "runAsUser" in each), None)

    @property
    def environment(self) -> dict[str, str]:
        return {
            each["name"]: each.get("value", self.namespace)
            for each in self.container.get("env", ())
        }

    @property
    def command(self) -> list[str]:
        """With its variables, as a kubelet puts them in."""
        words = [*self.container["command"], *self.container.get("args", ())]
        for name, value in self.environment.items():
            words = [word.replace(f"$({name})", value) for word in words]
        return words

    @property
    def configuration(self) -> tuple[str, str]:
        """The path of the configuration and its text; empty if there is none."""
        path = next((w.partition("=")[2] for w in self.command if w.startswith("--config=")), "")
        if not path:
            return "", ""
        for document in self.documents[1:]:
            if document["apiVersion"].startswith(SCHEDULER):
                return path, yaml.safe_dump(document)
            if Path(path).name in document.get("data", {}):
                return path, document["data"][Path(path).name]
        raise AssertionError(f"nothing is mounted at {path}")

    @property
    def probes(self) -> dict[str, dict[str, Any]]:
        return {
            name: self.container[name]["httpGet"]
            for name in ("startupProbe", "livenessProbe", "readinessProbe")
            if name in self.container
        }


class Extender:
    """Answers as any extender, keeps the verbs that were called, and binds."""

    def __init__(self, cluster: Cluster) -> None:
        self.called = list[str]()
        self._cluster = cluster

    async def answer(self, request: web.Request) -> web.Response:
        verb = request.path.rpartition("/")[2]
        self.called.append(verb)
        asked = await request.json()
        if verb == "filter":
            nodes = {key: asked.get(key) for key in ("Nodes", "NodeNames")}
            return web.json_response({**nodes, "FailedNodes": {}, "Error": ""})
        if verb == "prioritize":
            names = [item["metadata"]["name"] for item in asked["Nodes"]["items"]]
            return web.json_response([{"Host": name, "Score": 5} for name in names])
        pods = f"/api/v1/namespaces/{asked['PodNamespace']}/pods"
        target = {"kind": "Node", "name": asked["Node"]}
        metadata = {"name": asked["PodName"], "uid": asked["PodUID"]}
        binding = {"metadata": metadata, "target": target}
        self._cluster.call("POST", f"{pods}/{asked['PodName']}/binding", binding)
        return web.json_response({"Error": ""})


class Run(NamedTuple):
    """A manifest's process."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def alive(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        return True


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path, "--nodes=0") as running:
        resources = {name: "8" for manifest in map(Manifest, NAMES) for name in managed(manifest)}
        amounts = {"cpu": "8", "memory": "32Gi", "pods": "100", **resources}
        for number in range(3):
            metadata = {
                "name": f"node-{number}",
                "labels": {"kubernetes.io/hostname": f"n{number}"},
            }
            status = {"capacity": amounts, "allocatable": amounts}
            running.call("POST", "/api/v1/nodes", {"metadata": metadata, "status": status})
        yield running


def extenders(manifest: Manifest) -> list[dict[str, Any]]:
    document = yaml.safe_load(manifest.configuration[1]) or {}
    return document.get("extenders", [])


def managed(manifest: Manifest) -> list[str]:
    return [each["name"] for e in extenders(manifest) for each in e.get("managedResources", ())]


def laid_out(
    manifest: Manifest, root: Path, cluster: Cluster, authority: Authority, extender: str
) -> list[str]:
    """Writes what the manifest mounts below ``root``; returns its command with paths there."""

    def here(text: str) -> str:
        for path in manifest.mounts.values():
            text = re.sub(rf"(?<=[= ]){re.escape(path)}", f"{root}{path}", text)
        return text

    def write(path: str, content: str | bytes) -> None:
        assert any(path.startswith(mount) for mount in manifest.mounts.values()), path
        file = Path(f"{root}{path}")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        file.chmod(0o444)

    pem = authority.issue("localhost", hosts=("localhost", "127.0.0.1"))
    path, text = manifest.configuration
    if path:
        # Where the extender of the test is; scheme, host and port only.
        write(path, re.sub(r"https?://[\w.-]+:\d+", extender, here(text)))
    for word in manifest.command:
        if match := KUBECONFIG.fullmatch(word):
            write(match[1], cluster.kubeconfig.read_text())
        elif word.startswith("--tls-cert-file="):
            write(word.partition("=")[2], pem.certificate)
        elif word.startswith("--tls-private-key-file="):
            write(word.partition("=")[2], pem.key)
    program = root / "usr" / "local" / "bin" / "kube-scheduler"
    program.parent.mkdir(parents=True)
    program.symlink_to(Path(sys.executable).with_name("aiokube-scheduler"))
    first, *rest = manifest.command
    assert first in {"kube-scheduler", "/usr/local/bin/kube-scheduler"}
    return [str(program), *map(here, rest)]


def as_user(user: int | None) -> list[str]:
    """What starts a command as that user, without a name, where this machine lets us."""
    words = ["unshare", "--user", f"--map-user={user}", f"--map-group={user}", "--"]
    if user is None or not shutil.which(words[0]):
        return []
    probe = subprocess.run([*words, "true"], capture_output=True, timeout=20, check=False)
    return [] if probe.returncode else words


def probed(probe: dict[str, Any], port: int) -> bool:
    """What a kubelet does; it trusts any certificate."""
    assert probe["scheme"] == "HTTPS"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"https://{probe.get('host', '127.0.0.1')}:{port}{probe['path']}"
    try:
        with urllib.request.urlopen(url, timeout=5, context=context) as answer:
            return answer.read() == b"ok"
    except OSError:
        return False


@pytest.mark.parametrize("name", NAMES)
def test_pods_are_scheduled_with_only_the_image_changed(
    name: str, tmp_path: Path, cluster: Cluster, authority: Authority
) -> None:
    manifest, extender = Manifest(name), Extender(cluster)
    cluster.answer("POST", "/api/v1/namespaces", {"metadata": {"name": manifest.namespace}})
    app = web.Application()
    app.router.add_post("/{path:.*}", extender.answer)
    with serving(app) as url, reserved_port() as port:
        command = laid_out(manifest, tmp_path / "root", cluster, authority, url)
        environment = manifest.environment | {"KUBERNETES_MASTER": cluster.url}
        log = tmp_path / "scheduler.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*as_user(manifest.user), *command, f"--secure-port={port}"],
                cwd="/",
                env=environment,
                stdout=out,
                stderr=out,
            )
        try:
            check(manifest, cluster, extender, Run(process, log), port)
            process.terminate()
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
            process.wait()
    assert "Traceback" not in log.read_text()


def check(manifest: Manifest, cluster: Cluster, extender: Extender, run: Run, port: int) -> None:
    for probe in manifest.probes.values():
        wait_for(f"{probe['path']}", lambda probe=probe: run.alive() and probed(probe, port))
    document = yaml.safe_load(manifest.configuration[1]) or {}
    profiles = document.get("profiles") or [{}]
    served = profiles[0].get("schedulerName", "default-scheduler")
    pods = [pod(f"p-{number}", schedulerName=served) for number in range(3)]
    for resource in managed(manifest)[:1]:
        amounts = pods[0]["spec"]["containers"][0]["resources"]
        amounts["requests"][resource] = "1"
        amounts["limits"] = {resource: "1"}
    for each in pods:
        cluster.call("POST", "/api/v1/namespaces/default/pods", each)
    wait_for("bound pods", lambda: run.alive() and cluster.all_bound(len(pods)))
    verbs = {e[key] for e in extenders(manifest) for key in e if key.endswith("Verb")}
    assert set(extender.called) == verbs
    assert len(manifest.probes) >= 1


def test_the_manifests_are_valid() -> None:
    assert len(NAMES) == 11
    for name in NAMES:
        for document in Manifest(name).documents:
            if not document["apiVersion"].startswith(SCHEDULER):
                assert mistakes(document) == [], name


def test_what_a_kubelet_would_mount_is_what_the_command_names() -> None:
    for name in NAMES:
        manifest = Manifest(name)
        paths = [w.partition("=")[2] for w in manifest.command if "=/" in w]
        for path in paths:
            assert any(os.path.commonpath([path, m]) == m for m in manifest.mounts.values()), path
