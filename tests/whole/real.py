"""A real API server with RBAC and an audit log: etcd and kube-apiserver of $KUBEBUILDER_ASSETS, on this machine.

Test modules that need one begin with ``pytestmark = [*NEEDS_REAL]``. Without the programs they are skipped.
"""

import contextlib
import json
import os
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from app.tools.subprocesses import reserved_port
from tests.whole.harness import ApiServer, wait_for

ASSETS: Final = os.environ.get("KUBEBUILDER_ASSETS", "")
#: Older ones do not tell a kube-apiserver of today how far their watches have come, and its watches lose events.
OLDEST_ETCD: Final = (3, 5, 13)
_ADMIN: Final = "admin-token"
_START_SECONDS: Final = 120.0


def _missing() -> str:
    """Why there is no real API server here; empty: there is one."""
    if not ASSETS:
        return "KUBEBUILDER_ASSETS names no folder with etcd (3.5.13 or newer) and kube-apiserver"
    absent = [name for name in ("etcd", "kube-apiserver") if not Path(ASSETS, name).is_file()]
    return f"there is no {' and no '.join(absent)} in {ASSETS}" if absent else ""


NEEDS_REAL: Final = (
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(_missing()), reason=f"needs a real API server: {_missing()}"),
)


class RealApiServer(ApiServer):
    """``call`` speaks JSON to it, as an administrator. There are no controllers and no kubelets."""

    def __init__(self, directory: Path, *flags: str) -> None:
        """``flags``: further ones of kube-apiserver."""
        self._directory: Final = directory
        self._flags: Final = flags
        self._ports: Final = contextlib.ExitStack()
        self._serving: Final = contextlib.ExitStack()
        self._etcd_port, self._peer_port, self._port = (
            self._ports.enter_context(reserved_port()) for _ in range(3)
        )
        self.url = f"https://127.0.0.1:{self._port}"
        self.token = _ADMIN
        self.tls = ssl.create_default_context()
        self.tls.check_hostname = False
        self.tls.verify_mode = ssl.CERT_NONE
        self.audit_log: Final = directory / "audit.log"
        self.kubeconfig = self.write_kubeconfig("admin", _ADMIN)

    @contextlib.contextmanager
    def running(self) -> Iterator["RealApiServer"]:
        """Starts both programs and ends them. Skips the test if etcd is too old."""
        with self._ports, contextlib.ExitStack() as stack:
            stack.enter_context(_process(self._etcd(), self._directory))
            found = wait_for("etcd", self._etcd_version, _START_SECONDS)
            if tuple(map(int, found.split("-")[0].split("."))) < OLDEST_ETCD:
                oldest = ".".join(map(str, OLDEST_ETCD))
                pytest.skip(f"etcd is {found}: before {oldest} watches lose events")
            stack.enter_context(self._serving)
            self._serve(self._apiserver())
            yield self

    def _serve(self, command: list[str]) -> None:
        self._program = self._serving.enter_context(_process(command, self._directory))
        wait_for("the API server", self._is_ready, _START_SECONDS)

    def restart(self, seconds: float) -> None:
        """Kills kube-apiserver, as by SIGKILL, and starts it again after some seconds; returns when it is ready."""
        command: list[str] = self._program.args  # type: ignore[assignment]  # it was started with a list
        self._program.kill()
        self._serving.close()
        time.sleep(seconds)
        self._serve(command)

    def audited(self, user: str) -> list[dict[str, Any]]:
        """The requests of a user that have been answered, as audit events; one that is being written is left out."""
        whole, _, _ = self.audit_log.read_text().rpartition("\n")
        events = map(json.loads, whole.splitlines())
        return [event for event in events if event["user"].get("username") == user]

    def write_kubeconfig(self, name: str, token: str) -> Path:
        """A kubeconfig with this token."""
        path = self._directory / f"{name}.kubeconfig"
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    @contextlib.contextmanager
    def kube_scheduler(self, *flags: str, **configuration: Any) -> Iterator[None]:
        """kube-scheduler of $KUBEBUILDER_ASSETS with this configuration, in addition to its default. Skips the test
        without.
        """
        program = Path(ASSETS, "kube-scheduler")
        if not program.is_file():
            pytest.skip(f"there is no kube-scheduler in {ASSETS}")
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig), "qps": 1000, "burst": 1000},
            "leaderElection": {"leaderElect": False},
            **configuration,
        }
        config = self._directory / "kube-scheduler.yaml"
        config.write_text(yaml.safe_dump(document))
        command = [str(program), f"--config={config}", "--secure-port=0", *flags]
        with _process(command, self._directory):
            yield

    def _etcd_version(self) -> str:
        url = f"http://127.0.0.1:{self._etcd_port}"
        try:
            with urllib.request.urlopen(f"{url}/version", timeout=5) as answer:
                version: str = json.loads(answer.read())["etcdserver"]
            # kube-apiserver must find it at work, or its watches may stay empty.
            with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
                return version if json.loads(answer.read())["health"] == "true" else ""
        except OSError:
            return ""

    def _is_ready(self) -> bool:
        try:
            return all(
                self.call("GET", path) is not None
                for path in (
                    "/api/v1/namespaces/kube-system",
                    "/api/v1/namespaces/default",
                    "/apis/scheduling.k8s.io/v1/priorityclasses/system-cluster-critical",
                    "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:kube-scheduler",
                )
            )
        except (OSError, AssertionError):
            return False

    def _etcd(self) -> list[str]:
        client, peer = (f"http://127.0.0.1:{p}" for p in (self._etcd_port, self._peer_port))
        return [
            *(f"{ASSETS}/etcd", "--unsafe-no-fsync", f"--data-dir={self._directory / 'etcd'}"),
            *(f"--listen-client-urls={client}", f"--advertise-client-urls={client}"),
            *(f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}"),
            f"--initial-cluster=default={peer}",
        ]

    def _apiserver(self) -> list[str]:
        key, tokens = self._directory / "sa.key", self._directory / "tokens.csv"
        key.write_bytes(_new_key())
        tokens.write_text(f'{_ADMIN},admin,1,"system:masters"\n')
        policy = self._directory / "audit.yaml"
        rules = {"omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}
        policy.write_text(
            yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **rules})
        )
        return [
            *(f"{ASSETS}/kube-apiserver", "--authorization-mode=RBAC", "--bind-address=127.0.0.1"),
            *(f"--secure-port={self._port}", f"--cert-dir={self._directory / 'pki'}"),
            *(f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", f"--token-auth-file={tokens}"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--allow-privileged=true"),
            *("--service-cluster-ip-range=10.0.0.0/24",),
            *(f"--audit-policy-file={policy}", f"--audit-log-path={self.audit_log}"),
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
            *self._flags,
        ]


def _new_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


@contextlib.contextmanager
def _process(command: list[str], directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    log = directory / f"{Path(command[0]).name}.log"
    with (
        log.open("ab") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
