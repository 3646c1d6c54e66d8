"""A real API server with RBAC: etcd and kube-apiserver of $KUBEBUILDER_ASSETS, on this machine, for one test."""

import contextlib
import json
import os
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.whole.harness import wait_for

ASSETS: Final = os.environ.get("KUBEBUILDER_ASSETS", "")
_ADMIN: Final = "admin-token"
_START_SECONDS: Final = 60.0


class RealApiServer:
    """``call`` speaks JSON to it, as an administrator."""

    def __init__(self, directory: Path) -> None:
        self._directory: Final = directory
        self._etcd_port, self._peer_port, self._port = free_ports(3)
        self.url: Final = f"https://127.0.0.1:{self._port}"
        self._tls: Final = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self.kubeconfig: Final = self.write_kubeconfig("admin", _ADMIN)

    @contextlib.contextmanager
    def running(self) -> Iterator["RealApiServer"]:
        """Starts both programs and ends them."""
        with contextlib.ExitStack() as stack:
            for command in (self._etcd(), self._apiserver()):
                stack.enter_context(_process(command, self._directory))
            wait_for("the API server", self._is_ready, _START_SECONDS)
            yield self

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The answer, decoded; None for 404."""
        request = urllib.request.Request(
            self.url + path,
            data=None if body is None else json.dumps(body).encode(),
            method=method,
            headers={"Authorization": f"Bearer {_ADMIN}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=10, context=self._tls) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 404:
                    return None
                raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error

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

    def _is_ready(self) -> bool:
        try:
            return self.call("GET", "/api/v1/namespaces/kube-system") is not None
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
        return [
            *(f"{ASSETS}/kube-apiserver", "--authorization-mode=RBAC", "--bind-address=127.0.0.1"),
            *(f"--secure-port={self._port}", f"--cert-dir={self._directory / 'pki'}"),
            *(f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", f"--token-auth-file={tokens}"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *("--service-account-issuer=https://kubernetes.default.svc", "--allow-privileged=true"),
            *("--service-cluster-ip-range=10.0.0.0/24",),
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        ]


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on just now: these programs take no 0."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _new_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


@contextlib.contextmanager
def _process(command: list[str], directory: Path) -> Iterator[None]:
    log = directory / f"{Path(command[0]).name}.log"
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
