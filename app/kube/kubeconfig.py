"""Connection settings from a kubeconfig file, from inside a cluster, or from a bare address.

The only module that uses kubernetes_asyncio: it reads and merges kubeconfig files, knows the in-cluster convention and the
old auth providers (OIDC, GCP). Importing that package as usual also imports every generated model: one second of CPU and 39
MB that nothing here uses, so its ``config`` part is imported alone.
"""

import base64
import binascii
import contextlib
import importlib
import importlib.util
import logging
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from app.http.proxy import Proxy, parse_proxy, proxy_for
from app.http.tls import ClientCertificate
from app.kube.connection import (
    FILE_REFRESH,
    Connection,
    Identify,
    Identity,
    certificate_file_source,
    fixed_source,
    normalize_server,
    read_file,
    token_file_source,
)
from app.kube.errors import ConfigurationError
from app.kube.execplugin import ExecPlugin

logger = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_PACKAGE: Final = "kubernetes_asyncio"
_NO_CONFIGURATION: Final = (
    "invalid configuration: no configuration has been provided, "
    "try setting KUBERNETES_MASTER environment variable"
)


class _Library(msgspec.Struct, frozen=True):
    """The parts of kubernetes_asyncio.config in use."""

    ConfigException: Any
    ConfigNode: Any
    ExecProvider: Any
    InClusterConfigLoader: Any
    KubeConfigLoader: Any
    KubeConfigMerger: Any


@contextlib.contextmanager
def _without_generated_client() -> Iterator[None]:
    """Imports under this see a kubernetes_asyncio without its client; afterwards it is as if none had happened."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or _PACKAGE in sys.modules:
        yield
        return
    package, client = types.ModuleType(_PACKAGE), types.ModuleType(f"{_PACKAGE}.client")
    package.__path__ = list(spec.submodule_search_locations or ())
    vars(client).update(ApiClient=object, Configuration=object)
    sys.modules.update({_PACKAGE: package, f"{_PACKAGE}.client": client})
    try:
        yield
    finally:
        for name in [n for n in sys.modules if n == _PACKAGE or n.startswith(f"{_PACKAGE}.")]:
            del sys.modules[name]


def _library() -> _Library:
    with _without_generated_client():
        kube_config = importlib.import_module(f"{_PACKAGE}.config.kube_config")
        incluster = importlib.import_module(f"{_PACKAGE}.config.incluster_config")
    return _Library(
        ConfigException=kube_config.ConfigException,
        ConfigNode=kube_config.ConfigNode,
        ExecProvider=kube_config.ExecProvider,
        InClusterConfigLoader=incluster.InClusterConfigLoader,
        KubeConfigLoader=kube_config.KubeConfigLoader,
        KubeConfigMerger=kube_config.KubeConfigMerger,
    )


_LIBRARY: Final = _library()


def load_connection(
    *,
    kubeconfig: str = "",
    master: str = "",
    context: str | None = None,
    wall: Callable[[], float],
    environ: Mapping[str, str] = os.environ,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """The connection that kube-scheduler would use for these settings (docs/spec/configuration.md#client-connection).

    ``kubeconfig`` is a path, or several joined by ``:``; ``master`` overrides its server, and is enough by itself. With
    neither, the in-cluster settings apply. ``context`` overrides current-context. ``wall`` tells the time in seconds since
    the epoch, for credentials that expire. Raises ConfigurationError.
    """
    master = master or ("" if kubeconfig else environ.get("KUBERNETES_MASTER", ""))
    if kubeconfig:
        return _KubeConfig(kubeconfig, context, environ).connection(master, wall)
    if master:
        server = normalize_server(master)
        return Connection(server, proxy=_environment_proxy(server, environ))
    return _in_cluster(environ, service_account)


def _in_cluster(environ: Mapping[str, str], service_account: Path) -> Connection:
    found = types.SimpleNamespace(api_key={})
    token, ca = service_account / "token", service_account / "ca.crt"
    loader = _LIBRARY.InClusterConfigLoader(
        token_filename=token, cert_filename=ca, environ=dict(environ)
    )
    try:
        loader.load_and_set(found)
    except (_LIBRARY.ConfigException, OSError) as err:
        said = f"{_NO_CONFIGURATION}, or name a kubeconfig with --kubeconfig"
        raise ConfigurationError(f"{said} (not in a cluster either: {err})") from err
    return Connection(
        server=found.host,
        identify=token_file_source(token),
        ca_file=ca,
        proxy=_environment_proxy(found.host, environ),
    )


def _environment_proxy(server: str, environ: Mapping[str, str]) -> Proxy | None:
    try:
        return proxy_for(server, environ)
    except ValueError as err:
        raise ConfigurationError(str(err)) from err


class _KubeConfig:
    """One context of a kubeconfig: its cluster and its user."""

    def __init__(self, paths: str, context: str | None, environ: Mapping[str, str]) -> None:
        self._paths: Final = paths
        self._environ: Final = environ
        try:
            merger = _LIBRARY.KubeConfigMerger(paths)
        except (yaml.YAMLError, TypeError, AttributeError, KeyError, UnicodeError) as err:
            raise ConfigurationError(f"{paths}: not a kubeconfig: {err}") from err
        except OSError as err:
            raise ConfigurationError(f"{paths}: {err.strerror}") from err
        if merger.config is None:
            raise ConfigurationError(f"{paths}: no such file")
        self._config: Final = merger.config
        self._save: Final = merger.save_changes
        with self._explaining():
            self._context_name: Final = context or self._current_context(merger.config_files)
            chosen = self._entry("contexts", self._context_name, "context")
            self._cluster: Final = self._entry("clusters", chosen["cluster"], "cluster")
            self._user: Final = self._entry("users", chosen.safe_get("user"), "user")

    def _current_context(self, files: Mapping[str, Mapping[str, Any]]) -> str:
        """That of the first file that names one, as in client-go; the library would take the last."""
        name = next(filter(None, (file.get("current-context") for file in files.values())), None)
        if not name:
            raise ConfigurationError(f"{self._paths}: {_NO_CONFIGURATION}")
        return str(name)

    def _entry(self, section: str, name: str | None, key: str) -> Any:
        """What stands under a name; nothing at all (a user without credentials, say) counts as empty."""
        entry = self._config[section].get_with_name(name) if name else None
        if entry is None or not entry.safe_get(key):
            return _LIBRARY.ConfigNode(f"{section}[name={name}]", {})
        return entry[key]

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except (_LIBRARY.ConfigException, AttributeError, TypeError) as err:
            raise ConfigurationError(f"{self._paths}: {err}") from err

    def connection(self, master: str, wall: Callable[[], float]) -> Connection:
        """The settings of this context; ``master`` overrides the server."""
        with self._explaining():
            server = normalize_server(master or self._cluster["server"])
            insecure = bool(self._cluster.safe_get("insecure-skip-tls-verify"))
            ca = self._bytes(self._cluster, "certificate-authority")
            if insecure and ca is not None:
                raise ConfigurationError(
                    f"{self._paths}: specifying a root certificates file with the insecure flag is not allowed"
                )
            return Connection(
                server=server,
                identify=self._source(wall),
                ca=ca,
                ca_file=self._file(self._cluster, "certificate-authority"),
                verify=not insecure,
                tls_server_name=self._cluster.safe_get("tls-server-name") or None,
                proxy=self._proxy(server),
                headers=self._impersonation(),
            )

    def _proxy(self, server: str) -> Proxy | None:
        proxy = self._cluster.safe_get("proxy-url")
        if not proxy:
            return _environment_proxy(server, self._environ)
        try:
            return parse_proxy(str(proxy))
        except ValueError as err:
            raise ConfigurationError(f"{self._paths}: proxy-url: {err}") from err

    def _impersonation(self) -> tuple[tuple[str, str], ...]:
        fields = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
        headers = [(h, str(self._user.safe_get(f))) for f, h in fields if self._user.safe_get(f)]
        headers += [("Impersonate-Group", str(g)) for g in self._user.safe_get("as-groups") or ()]
        extra: dict[str, list[str]] = self._user.safe_get("as-user-extra") or {}
        headers += [
            (f"Impersonate-Extra-{key}", v) for key, values in extra.items() for v in values
        ]
        return tuple(headers)

    # ------------------------------------------------------------ credentials

    def _source(self, wall: Callable[[], float]) -> Identify:
        """By precedence: certificate beside any of: token file, token, basic auth, plugin, old auth provider."""
        user = self._user
        certificate = self._certificate_reader()
        certificate()
        if user.safe_get("tokenFile"):
            return token_file_source(self._path(user, user["tokenFile"]), certificate)
        fixed = self._fixed_authorization()
        if fixed is None and user.safe_get("exec"):
            return self._exec_source(wall)
        if fixed is None and user.safe_get("auth-provider"):
            return self._provider_source()
        if self._file(user, "client-certificate") or self._file(user, "client-key"):
            return certificate_file_source(fixed, certificate)
        return fixed_source(Identity(fixed, certificate()))

    def _fixed_authorization(self) -> str | None:
        if token := self._user.safe_get("token"):
            return f"Bearer {token}"
        if name := self._user.safe_get("username"):
            pair = f"{name}:{self._user.safe_get('password') or ''}"
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
        settings = self._user["exec"]
        parsed = _LIBRARY.ExecProvider(settings)
        command = parsed.args[0]
        if os.sep in command:
            command = str(self._path(self._user, command))
        plugin = ExecPlugin(
            api_version=parsed.api_version,
            args=(command, *map(str, parsed.args[1:])),
            environ=parsed.env,
            install_hint=settings.safe_get("installHint") or "",
            cluster=self._cluster_info() if settings.safe_get("provideClusterInfo") else None,
        )
        return lambda: plugin.identify(wall)

    def _cluster_info(self) -> dict[str, object]:
        """The cluster as plugins that ask for it want to see it (spec.cluster of ExecCredential)."""
        ca = self._bytes(self._cluster, "certificate-authority")
        extensions = self._cluster.safe_get("extensions") or ()
        config = next(
            (
                e["extension"]
                for e in extensions
                if e["name"] == "client.authentication.k8s.io/exec"
            ),
            None,
        )
        info = {
            "server": self._cluster["server"],
            "tls-server-name": self._cluster.safe_get("tls-server-name"),
            "insecure-skip-tls-verify": self._cluster.safe_get("insecure-skip-tls-verify"),
            "certificate-authority-data": base64.b64encode(ca).decode() if ca else None,
            "proxy-url": self._cluster.safe_get("proxy-url"),
            "config": config,
        }
        return {key: value for key, value in info.items() if value is not None}

    def _provider_source(self) -> Identify:
        """The old auth providers, which renew their tokens by themselves when asked and save what they got."""
        loader = _LIBRARY.KubeConfigLoader(
            self._config,
            active_context=self._context_name,
            config_base_path=None,
            config_persister=self._persist,
        )

        async def identify() -> Identity:
            found = types.SimpleNamespace(api_key={})
            with self._explaining():
                await loader.load_and_set(found)
            return Identity(found.api_key.get("BearerToken"), valid_for=FILE_REFRESH)

        return identify

    def _persist(self, _config: object) -> None:
        try:
            self._save()
        except OSError as err:
            logger.warning("Renewed credentials could not be saved to %s: %s", self._paths, err)

    # ------------------------------------------------------------ values

    def _file(self, node: Any, name: str) -> Path | None:
        """The file ``<name>``, None if there is none or ``<name>-data`` comes first."""
        if node.safe_get(f"{name}-data"):
            return None
        path = node.safe_get(name)
        return self._path(node, path) if path else None

    def _bytes(self, node: Any, name: str) -> bytes | None:
        """``<name>-data``, decoded, or the content of the file ``<name>``."""
        if data := node.safe_get(f"{name}-data"):
            return self._decode(str(data), f"{name}-data")
        path = self._file(node, name)
        return None if path is None else read_file(path, name)

    def _decode(self, data: str, name: str) -> bytes:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except binascii.Error as err:
            raise ConfigurationError(f"{self._paths}: {name} is not base64: {err}") from err

    @staticmethod
    def _path(node: Any, path: str) -> Path:
        """A path in a kubeconfig is relative to the file it stands in."""
        return Path(node.path).parent / path if node.path else Path(path)
