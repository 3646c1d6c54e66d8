"""Connection settings from a kubeconfig file, from inside a cluster, or from a bare address."""

import base64
import binascii
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from app.kube.connection import (
    ClientCertificate,
    Connection,
    Identify,
    Identity,
    certificate_file_source,
    fixed_source,
    normalize_server,
    proxy_from_environment,
    read_file,
    token_file_source,
)
from app.kube.errors import ConfigurationError
from app.kube.execplugin import ExecPlugin
from app.kube.kubeconfig_files import KubeconfigFiles, Settings

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_NO_CONFIGURATION: Final = (
    "invalid configuration: no configuration has been provided, "
    "try setting KUBERNETES_MASTER environment variable"
)


def load_connection(
    *,
    kubeconfig: str = "",
    master: str = "",
    context: str | None = None,
    wall: Callable[[], float],
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """The connection that kube-scheduler would use for these settings (spec: service.md 1.4).

    ``kubeconfig`` is a path, or several joined by ``:``; ``master`` overrides its server, and is enough by itself. With
    neither, the in-cluster settings apply. ``context`` overrides current-context. ``wall`` tells the time in seconds since
    the epoch, for credentials that expire. Raises ConfigurationError.
    """
    master = master or ("" if kubeconfig else environ.get("KUBERNETES_MASTER", ""))
    if kubeconfig:
        return _KubeConfig(kubeconfig, context, environ).connection(master, wall)
    if master:
        server = normalize_server(master)
        return Connection(server, proxy=proxy_from_environment(server, environ))
    return _in_cluster(environ, service_account)


def _in_cluster(environ: Mapping[str, str], service_account: Path) -> Connection:
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    if not host or not port:
        raise ConfigurationError(f"{_NO_CONFIGURATION}, or name a kubeconfig with --kubeconfig")
    token = service_account / "token"
    if not token.is_file():
        said = f"the service account's token is missing: {token}"
        raise ConfigurationError(f"{_NO_CONFIGURATION} (in a cluster, but {said})")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Connection(
        server=server,
        identify=token_file_source(token),
        ca=read_file(service_account / "ca.crt", "certificate authority"),
        proxy=proxy_from_environment(server, environ),
    )


class _KubeConfig:
    """One context of a kubeconfig: its cluster and its user."""

    def __init__(self, paths: str, context: str | None, environ: Mapping[str, str]) -> None:
        self._paths: Final = paths
        self._environ: Final = environ
        files = KubeconfigFiles(paths)
        context = context or files.current_context
        if not context:
            raise ConfigurationError(f"{paths}: {_NO_CONFIGURATION}")
        chosen = files.find("context", context)
        self._cluster: Final = files.find("cluster", str(chosen.needed("cluster")))
        self._user: Final = files.find("user", str(chosen.get("user") or ""))

    def connection(self, master: str, wall: Callable[[], float]) -> Connection:
        """The settings of this context; ``master`` overrides the server."""
        server = normalize_server(master or str(self._cluster.needed("server")))
        insecure = bool(self._cluster.get("insecure-skip-tls-verify"))
        ca = self._bytes(self._cluster, "certificate-authority")
        if insecure and ca is not None:
            raise ConfigurationError(
                f"{self._paths}: specifying a root certificates file with the insecure flag is not allowed"
            )
        return Connection(
            server=server,
            identify=self._source(wall),
            ca=ca,
            verify=not insecure,
            tls_server_name=self._cluster.get("tls-server-name") or None,
            proxy=self._proxy(server),
            headers=self._impersonation(),
        )

    def _proxy(self, server: str) -> str | None:
        proxy = self._cluster.get("proxy-url")
        if not proxy:
            return proxy_from_environment(server, self._environ)
        if not str(proxy).startswith(("http://", "https://")):
            raise ConfigurationError(
                f"{self._paths}: proxy-url {proxy}: only http and https proxies are supported"
            )
        return str(proxy)

    def _impersonation(self) -> tuple[tuple[str, str], ...]:
        fields = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
        headers = [(h, str(self._user.get(f))) for f, h in fields if self._user.get(f)]
        headers += [("Impersonate-Group", str(g)) for g in self._user.items("as-groups")]
        extra = self._user.below("as-user-extra")
        headers += [
            (f"Impersonate-Extra-{key}", v) for key in extra.values for v in extra.items(key)
        ]
        return tuple(headers)

    # ------------------------------------------------------------ credentials

    def _source(self, wall: Callable[[], float]) -> Identify:
        """By precedence: certificate beside any of: token file, token, basic auth, plugin."""
        user = self._user
        certificate = self._certificate_reader()
        certificate()
        if user.get("tokenFile"):
            return token_file_source(user.path(user.get("tokenFile")), certificate)
        fixed = self._fixed_authorization()
        if fixed is None and user.get("exec"):
            return self._exec_source(wall)
        if fixed is None and user.get("auth-provider"):
            name = self._user.below("auth-provider").get("name")
            said = f'no Auth Provider found for name "{name}"; use an exec plugin in its place'
            raise ConfigurationError(f"{self._paths}: {said}")
        if user.get("client-certificate") and not user.get("client-certificate-data"):
            return certificate_file_source(fixed, certificate)
        return fixed_source(Identity(fixed, certificate()))

    def _fixed_authorization(self) -> str | None:
        if token := self._user.get("token"):
            return f"Bearer {token}"
        if name := self._user.get("username"):
            pair = f"{name}:{self._user.get('password') or ''}"
            return "Basic " + base64.b64encode(pair.encode()).decode("ascii")
        return None

    def _certificate_reader(self) -> Callable[[], ClientCertificate | None]:
        user = self._user

        def read() -> ClientCertificate | None:
            chain, key = self._bytes(user, "client-certificate"), self._bytes(user, "client-key")
            if (chain is None) != (key is None):
                raise ConfigurationError(
                    f"{self._paths}: a client certificate needs both client-certificate and client-key"
                )
            return ClientCertificate(chain, key) if chain is not None and key is not None else None

        return read

    def _exec_source(self, wall: Callable[[], float]) -> Identify:
        settings = self._user.below("exec")
        command = str(settings.needed("command"))
        variables = {str(v.needed("name")): str(v.needed("value")) for v in settings.each("env")}
        plugin = ExecPlugin(
            api_version=str(settings.needed("apiVersion")),
            args=(
                str(settings.path(command)) if os.sep in command else command,
                *map(str, settings.items("args")),
            ),
            environ={**os.environ, **variables},
            install_hint=settings.get("installHint") or "",
            cluster=self._cluster_info() if settings.get("provideClusterInfo") else None,
        )
        return lambda: plugin.identify(wall)

    def _cluster_info(self) -> dict[str, object]:
        """The cluster as plugins that ask for it want to see it (spec.cluster of ExecCredential)."""
        ca = self._bytes(self._cluster, "certificate-authority")
        config = next(
            (
                extension.get("extension")
                for extension in self._cluster.each("extensions")
                if extension.get("name") == "client.authentication.k8s.io/exec"
            ),
            None,
        )
        info = {
            "server": self._cluster.get("server"),
            "tls-server-name": self._cluster.get("tls-server-name"),
            "insecure-skip-tls-verify": self._cluster.get("insecure-skip-tls-verify"),
            "certificate-authority-data": base64.b64encode(ca).decode() if ca else None,
            "proxy-url": self._cluster.get("proxy-url"),
            "config": config,
        }
        return {key: value for key, value in info.items() if value is not None}

    # ------------------------------------------------------------ values

    def _bytes(self, settings: Settings, name: str) -> bytes | None:
        """``<name>-data``, decoded, or the content of the file ``<name>``."""
        if data := settings.get(f"{name}-data"):
            return self._decode(str(data), f"{name}-data")
        if path := settings.get(name):
            return read_file(settings.path(path), name)
        return None

    def _decode(self, data: str, name: str) -> bytes:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error as err:
            raise ConfigurationError(f"{self._paths}: {name} is not base64: {err}") from err
