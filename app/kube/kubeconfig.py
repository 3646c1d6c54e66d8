"""Loads connection settings from a kubeconfig file, from inside a cluster, or from an address.

Kubeconfig files are read and merged here. The old auth providers (OIDC, GCP), which renew their tokens, are those of
kubernetes_asyncio; it is imported only if one is configured, because it takes a second of CPU and 39 MB.
"""

import base64
import contextlib
import importlib
import logging
import os
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

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
from app.kube.errors import ConnectionSettingsError
from app.settings.yaml import load_documents

logger = logging.getLogger(__name__)

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_NO_CONFIGURATION: Final = (
    "invalid configuration: no configuration has been provided, "
    "try setting KUBERNETES_MASTER environment variable"
)


class _Entry(NamedTuple):
    """A cluster, context, user or exec section, its file, and its name in errors."""

    where: str
    fields: Mapping[str, Any]
    path: str

    def get(self, key: str) -> Any:
        """A field, None if it is missing."""
        return self.fields.get(key)

    def text(self, key: str) -> str:
        """A required field. Raises ConnectionSettingsError."""
        value = self.fields.get(key)
        if value is None:
            raise ConnectionSettingsError(f"expected key {key} in {self.where}")
        return str(value)


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

    ``kubeconfig`` is a path, or several joined by ``:``; ``master`` overrides its server, and is sufficient alone. With
    neither, the in-cluster settings apply. ``context`` overrides current-context. ``wall`` returns the time in seconds
    since the epoch, for credentials that expire. Raises ConnectionSettingsError.
    """
    master = master or ("" if kubeconfig else environ.get("KUBERNETES_MASTER", ""))
    if kubeconfig:
        return _KubeConfig(kubeconfig, context, environ).connection(master, wall)
    if master:
        server = normalize_server(master)
        return Connection(server, proxy=_environment_proxy(server, environ))
    return _in_cluster(environ, service_account)


def namespace_of(
    kubeconfig: str, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> str:
    """The namespace of a context, ``default`` if it names none. Raises ConnectionSettingsError."""
    return _KubeConfig(kubeconfig, context, environ).namespace or "default"


def _in_cluster(environ: Mapping[str, str], service_account: Path) -> Connection:
    token, ca = service_account / "token", service_account / "ca.crt"
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "")
    problem = ""
    if not host or not port:
        problem = "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"
    for path, what in ((token, "the token file"), (ca, "the certificate authority")):
        problem = problem or _problem_of(path, what)
    if problem:
        said = f"{_NO_CONFIGURATION}, or name a kubeconfig with --kubeconfig"
        if environ.get("KUBECONFIG"):
            said += ' "$KUBECONFIG", which is not read by itself, as in kube-scheduler'
        raise ConnectionSettingsError(f"{said} (not in a cluster either: {problem})")
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return Connection(
        server=server,
        identify=token_file_source(token),
        ca_file=ca,
        proxy=_environment_proxy(server, environ),
    )


def _problem_of(path: Path, what: str) -> str:
    try:
        return "" if path.read_bytes() else f"{what} {path} is empty"
    except OSError as err:
        return f"{what} {path} cannot be read: {err.strerror}"


def _environment_proxy(server: str, environ: Mapping[str, str]) -> Proxy | None:
    try:
        return proxy_for(server, environ)
    except ValueError as err:
        raise ConnectionSettingsError(str(err)) from err


class _KubeConfig:
    """One context of a kubeconfig: its cluster and its user."""

    def __init__(self, paths: str, context: str | None, environ: Mapping[str, str]) -> None:
        self._paths: Final = paths
        self._environ: Final = environ
        self._files: Final = _read_files(paths)
        with self._explaining():
            self._context_name: Final = context or self._current_context()
            chosen = self._entry("contexts", self._context_name, "context")
            self.namespace: Final = str(chosen.get("namespace") or "")
            self._cluster: Final = self._entry("clusters", chosen.text("cluster"), "cluster")
            self._user: Final = self._entry("users", chosen.get("user"), "user")

    def _current_context(self) -> str:
        """That of the first file that names one, as in client-go."""
        name = next(
            filter(None, (file.get("current-context") for file in self._files.values())), None
        )
        if not name:
            raise ConnectionSettingsError(_NO_CONFIGURATION)
        return str(name)

    def _entry(self, section: str, name: str | None, key: str) -> _Entry:
        """The entry of a section with this name, from the first file that has it.

        An entry without content (such as a user without credentials) is empty.
        """
        where = f"{section}[name={name}]"
        if not name:
            return _Entry(where, {}, "")
        for path, file in self._files.items():
            found = [entry for entry in _list(file, section, path) if entry.get("name") == name]
            if len(found) > 1:
                raise ConnectionSettingsError(f"{path}: expected only one {where}")
            if found:
                return _Entry(where, found[0].get(key) or {}, path)
        raise ConnectionSettingsError(f"expected object with name {name} in {section} list")

    @contextlib.contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except ConnectionSettingsError as err:
            if str(err).startswith(self._paths):
                raise
            raise ConnectionSettingsError(f"{self._paths}: {err}") from err
        except (AttributeError, TypeError) as err:
            raise ConnectionSettingsError(f"{self._paths}: not a kubeconfig: {err}") from err

    def connection(self, master: str, wall: Callable[[], float]) -> Connection:
        """The settings of this context; ``master`` overrides the server."""
        with self._explaining():
            server = normalize_server(master or self._cluster.text("server"))
            insecure = bool(self._cluster.get("insecure-skip-tls-verify"))
            ca = self._bytes(self._cluster, "certificate-authority")
            if insecure and ca is not None:
                raise ConnectionSettingsError(
                    f"{self._paths}: specifying a root certificates file with the insecure flag is not allowed"
                )
            return Connection(
                server=server,
                identify=self._source(wall),
                ca=ca,
                ca_file=self._file(self._cluster, "certificate-authority"),
                verify=not insecure,
                tls_server_name=self._cluster.get("tls-server-name") or None,
                proxy=self._proxy(server),
                headers=self._impersonation(),
            )

    def _proxy(self, server: str) -> Proxy | None:
        proxy = self._cluster.get("proxy-url")
        if not proxy:
            return _environment_proxy(server, self._environ)
        try:
            return parse_proxy(str(proxy))
        except ValueError as err:
            raise ConnectionSettingsError(f"{self._paths}: proxy-url: {err}") from err

    def _impersonation(self) -> tuple[tuple[str, str], ...]:
        fields = (("as", "Impersonate-User"), ("as-uid", "Impersonate-Uid"))
        headers = [(h, str(self._user.get(f))) for f, h in fields if self._user.get(f)]
        headers += [("Impersonate-Group", str(g)) for g in self._user.get("as-groups") or ()]
        extra: Mapping[Any, Sequence[Any]] = self._user.get("as-user-extra") or {}
        headers += [
            (f"Impersonate-Extra-{_header_key(str(key))}", str(value))
            for key, values in extra.items()
            for value in values
        ]
        return tuple(headers)

    # ------------------------------------------------------------ credentials

    def _source(self, wall: Callable[[], float]) -> Identify:
        """The credentials by precedence: token file, token, basic auth, plugin, old auth provider; each with a
        certificate, if given."""
        user = self._user
        certificate = self._certificate_reader()
        certificate()
        if user.get("tokenFile"):
            return token_file_source(self._path(user, user.text("tokenFile")), certificate)
        fixed = self._fixed_authorization()
        if fixed is None and user.get("exec"):
            return self._exec_source(wall)
        if fixed is None and user.get("auth-provider"):
            return self._provider_source()
        if self._file(user, "client-certificate") or self._file(user, "client-key"):
            return certificate_file_source(fixed, certificate)
        return fixed_source(Identity(fixed, certificate()))

    def _fixed_authorization(self) -> str | None:
        if token := self._user.get("token"):
            return f"Bearer {token}"
        if name := self._user.get("username"):
            pair = f"{name}:{self._user.get('password') or ''}"
            try:
                return "Basic " + base64.b64encode(pair.encode()).decode("ascii")
            except UnicodeError as err:
                raise ConnectionSettingsError("the user or password is not text") from err
        return None

    def _certificate_reader(self) -> Callable[[], ClientCertificate | None]:
        user = self._user

        def read() -> ClientCertificate | None:
            chain, key = self._bytes(user, "client-certificate"), self._bytes(user, "client-key")
            if (chain is None) != (key is None):
                raise ConnectionSettingsError(
                    f"{self._paths}: a client certificate needs both client-certificate and client-key"
                )
            return ClientCertificate(chain, key) if chain is not None and key is not None else None

        return read

    def _exec_source(self, wall: Callable[[], float]) -> Identify:
        settings = _Entry(f"{self._user.where}/exec", self._user.get("exec"), self._user.path)
        command = settings.text("command")
        if os.sep in command:
            command = str(self._path(self._user, command))
        variables = {
            _text(each, "name"): _text(each, "value") for each in settings.get("env") or ()
        }
        from app.kube.execplugin import ExecPlugin  # noqa: PLC0415 - few kubeconfigs name one

        plugin = ExecPlugin(
            api_version=settings.text("apiVersion"),
            args=(command, *map(str, settings.get("args") or ())),
            environ={**os.environ, **variables},
            install_hint=settings.get("installHint") or "",
            cluster=self._cluster_info() if settings.get("provideClusterInfo") else None,
        )
        return lambda: plugin.identify(wall)

    def _cluster_info(self) -> dict[str, object]:
        """The cluster for plugins that ask for it (spec.cluster of ExecCredential)."""
        ca = self._bytes(self._cluster, "certificate-authority")
        extensions = self._cluster.get("extensions") or ()
        config = next(
            (
                e["extension"]
                for e in extensions
                if e["name"] == "client.authentication.k8s.io/exec"
            ),
            None,
        )
        info = {
            "server": self._cluster.text("server"),
            "tls-server-name": self._cluster.get("tls-server-name"),
            "insecure-skip-tls-verify": self._cluster.get("insecure-skip-tls-verify"),
            "certificate-authority-data": base64.b64encode(ca).decode() if ca else None,
            "proxy-url": self._cluster.get("proxy-url"),
            "config": config,
        }
        return {key: value for key, value in info.items() if value is not None}

    def _provider_source(self) -> Identify:
        """The old auth providers, which renew and save their tokens."""
        library = importlib.import_module("kubernetes_asyncio.config.kube_config")
        merger = library.KubeConfigMerger(self._paths)

        def persist(_config: object) -> None:
            try:
                merger.save_changes()
            except OSError as err:
                logger.warning("Renewed credentials could not be saved to %s: %s", self._paths, err)

        loader = library.KubeConfigLoader(
            merger.config,
            active_context=self._context_name,
            config_base_path=None,
            config_persister=persist,
        )

        async def identify() -> Identity:
            found = types.SimpleNamespace(api_key={})
            try:
                await loader.load_and_set(found)
                return Identity(found.api_key.get("BearerToken"), valid_for=FILE_REFRESH)
            except (ConnectionSettingsError, library.ConfigException) as err:
                raise ConnectionSettingsError(f"{self._paths}: {err}") from err
            except Exception as err:  # of the library, for an answer that it does not expect
                raise ConnectionSettingsError(
                    f"{self._paths}: the auth provider failed: {type(err).__name__}: {err}"
                ) from err

        return identify

    # ------------------------------------------------------------ values

    def _file(self, node: Any, name: str) -> Path | None:
        """The file ``<name>``, None if there is none or ``<name>-data`` comes first."""
        if node.get(f"{name}-data"):
            return None
        path = node.get(name)
        return self._path(node, path) if path else None

    def _bytes(self, node: Any, name: str) -> bytes | None:
        """``<name>-data``, decoded, or the content of the file ``<name>``."""
        if data := node.get(f"{name}-data"):
            return self._decode(str(data), f"{name}-data")
        path = self._file(node, name)
        return None if path is None else read_file(path, name)

    def _decode(self, data: str, name: str) -> bytes:
        try:
            return base64.b64decode("".join(data.split()), validate=True)
        except ValueError as err:
            raise ConnectionSettingsError(f"{self._paths}: {name} is not base64: {err}") from err

    @staticmethod
    def _path(node: Any, path: str) -> Path:
        """A path in a kubeconfig is relative to the file it stands in."""
        return Path(node.path).parent / path if node.path else Path(path)


def _read_files(paths: str) -> dict[str, Mapping[str, Any]]:
    """The files of a list of paths joined by ``:``, in its order; missing files are skipped.

    Raises ConnectionSettingsError, also if there are none.
    """
    files: dict[str, Mapping[str, Any]] = {}
    for path in filter(None, paths.split(os.pathsep)):
        full = os.path.expanduser(path)
        try:
            text = Path(full).read_text(encoding="utf-8")
            documents = load_documents(text, surrogates=True)
        except FileNotFoundError:
            continue
        except OSError as err:
            raise ConnectionSettingsError(f"{paths}: {err.strerror}") from err
        except (ValueError, TypeError, RecursionError) as err:
            raise ConnectionSettingsError(f"{paths}: not a kubeconfig: {err}") from err
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise ConnectionSettingsError(f"{paths}: not a kubeconfig: expected a mapping")
        files[full] = documents[0]
    if not files:
        raise ConnectionSettingsError(f"{paths}: no such file")
    return files


def _list(file: Mapping[str, Any], section: str, path: str) -> Sequence[Mapping[str, Any]]:
    """A section's entries. Raises ConnectionSettingsError."""
    entries = file.get(section) or []
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise ConnectionSettingsError(f"{path}: expected {section} to be a list of objects")
    return entries


def _header_key(key: str) -> str:
    """A key of extra in the name of a header, escaped as by client-go: %xx for what no name can hold."""
    return quote(key, safe="!#$&'*+^`|", errors="replace")


def _text(variable: Mapping[str, Any], key: str) -> str:
    value = variable.get(key)
    if value is None:
        raise ConnectionSettingsError(f"expected key {key} in env of exec")
    return str(value)
