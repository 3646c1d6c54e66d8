"""TLS to extenders as in kube-scheduler (docs/spec/extenders.md#tls), with warnings if it is unsafe.

``enableHTTPS`` without a CA disables verification; deployed extenders rely on it, so it is allowed with a warning.
Files with certificates, keys and authorities are reloaded when they change; if the new ones cannot be used the old ones
stay in use.
"""

import ssl
from pathlib import Path
from typing import Final

from app.extender.config import ExtenderConfig, ExtenderConfigError, TLSConfig
from app.http.files import FileWatch
from app.http.tls import ClientCertificate, client_context

_UNVERIFIED: Final = (
    "extender {name}: the server's certificate is not verified, because {why}; {way_out}"
)
_GIVE_A_CA: Final = "name its authority in tlsConfig.caFile or caData"


class TLSSource:
    """Makes the SSL context for one extender, again when its files change."""

    def __init__(self, config: ExtenderConfig) -> None:
        """Raises ExtenderConfigError for contradictory settings and unusable certificates or keys."""
        self._name: Final = config.name
        self._tls: Final = config.tls or TLSConfig()
        why = _why_unverified(config)
        self._verify: Final = not why
        self.warnings: Final = _warnings(config, why)
        self._watch: Final = FileWatch(_files(self._tls))
        #: Why the newest files are not in use; empty if they are.
        self.problem = ""
        self._context: ssl.SSLContext | None = None
        if config.tls or config.enable_https or _is_https(config):
            try:
                self._context = self._load()
            except ValueError as err:
                raise ExtenderConfigError(f"extender {self._name}: {err}") from err

    @property
    def server_name(self) -> str | None:
        """The server name to request and verify; None for the host in the URL."""
        return self._tls.server_name or None

    def context(self, now: float) -> ssl.SSLContext | None:
        """The context for the current files; None without TLS settings (a redirect may still lead to https)."""
        if self._watch.changed(now):
            try:
                self._context = self._load()
                self.problem = ""
            except ValueError as err:
                self._watch.failed(err, now)
                self.problem = f"{err}; the previous content stays in use"
        return self._context

    def _load(self) -> ssl.SSLContext:
        try:
            return _context(self._tls, verify=self._verify)
        except (OSError, ValueError) as err:
            raise ValueError(f"tlsConfig: {err}") from err


def _is_https(config: ExtenderConfig) -> bool:
    return config.url_prefix.lower().startswith("https:")


def _why_unverified(config: ExtenderConfig) -> str:
    """Why the server is not verified; empty if it is."""
    tls = config.tls or TLSConfig()
    if tls.insecure and tls.has_ca:
        raise ExtenderConfigError(
            f"extender {config.name}: tlsConfig: specifying a root certificates file with the insecure flag is not "
            "allowed; drop one of them"
        )
    if tls.insecure:
        why = "tlsConfig.insecure is set"
    elif config.enable_https and not tls.has_ca:
        why = "enableHTTPS is set and no CA is given"
    else:
        return ""
    if config.require_verified_tls:
        raise ExtenderConfigError(
            _UNVERIFIED.format(name=config.name, why=why, way_out=f"that is refused; {_GIVE_A_CA}")
        )
    return why


def _warnings(config: ExtenderConfig, why: str) -> tuple[str, ...]:
    tls = config.tls or TLSConfig()
    warnings = []
    if why and _is_https(config):
        warnings.append(_UNVERIFIED.format(name=config.name, why=why, way_out=_GIVE_A_CA))
    if tls.has_cert != tls.has_key:
        half, other = ("certificate", "key") if tls.has_cert else ("key", "certificate")
        warnings.append(
            f"extender {config.name}: tlsConfig has a client {half} without its {other}; it is not used"
        )
    if config.enable_https and not _is_https(config):
        warnings.append(
            f"extender {config.name}: enableHTTPS is set, but the urlPrefix says http; calls are not encrypted"
        )
    return tuple(warnings)


def _files(tls: TLSConfig) -> tuple[str, ...]:
    """The files in use; data override a file."""
    pairs = (
        (tls.cert_data, tls.cert_file),
        (tls.key_data, tls.key_file),
        (tls.ca_data, tls.ca_file),
    )
    return tuple(file for data, file in pairs if file and not data)


def _context(tls: TLSConfig, *, verify: bool) -> ssl.SSLContext:
    ca = tls.ca_data or Path(tls.ca_file).read_bytes() if verify and tls.has_ca else None
    certificate = None
    if tls.has_cert and tls.has_key:
        certificate = ClientCertificate(
            chain=tls.cert_data or Path(tls.cert_file).read_bytes(),
            key=tls.key_data or Path(tls.key_file).read_bytes(),
        )
    return client_context(ca=ca, verify=verify, certificate=certificate)
