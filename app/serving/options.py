"""Options of the endpoints: kube-scheduler's serving, authentication and authorization flags.

See docs/spec/endpoints.md#flags.
"""

from typing import Final

import msgspec

ALWAYS_ALLOWED: Final = ("/healthz", "/readyz", "/livez")


class ServingError(Exception):
    """The endpoints cannot be served with these options; the text says why and what to do."""


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Limits of concurrent connections."""

    total: int = 256
    per_source: int = 64

    def within(self, descriptors: int) -> "ConnectionLimits":
        """These limits, lowered to an eighth of the file descriptors, and a quarter of that for one source."""
        total = max(4, min(self.total, descriptors // 8))
        return ConnectionLimits(total, max(2, min(self.per_source, total // 4)))


class ServingOptions(msgspec.Struct, frozen=True):
    """Options of the endpoints; durations in seconds."""

    #: 0: nothing is served.
    secure_port: int = 10259
    bind_address: str = "0.0.0.0"  # noqa: S104 - kube-scheduler's default for --bind-address
    #: Other processes may listen on the same address and port, as with SO_REUSEPORT.
    permit_port_sharing: bool = False
    #: PEM files, read again when they change; without them a self-signed certificate is made in memory.
    tls_cert_file: str = ""
    tls_private_key_file: str = ""
    #: VersionTLS12 or VersionTLS13.
    tls_min_version: str = ""
    #: PEM file with the authorities of client certificates; without it client certificates are not used.
    client_ca_file: str = ""
    #: No TLS; for development on a private machine.
    insecure_http: bool = False
    #: Kubeconfigs of the API servers that review tokens and access; empty: the scheduler's own.
    authentication_kubeconfig: str = ""
    authorization_kubeconfig: str = ""
    #: Review no tokens: clients without a certificate are anonymous.
    authentication_skip_lookup: bool = False
    authentication_token_webhook_cache_ttl: float = 10.0
    authorization_webhook_cache_authorized_ttl: float = 10.0
    authorization_webhook_cache_unauthorized_ttl: float = 10.0
    #: Paths that need no authorization; a * at the end matches any suffix.
    authorization_always_allow_paths: tuple[str, ...] = ALWAYS_ALLOWED
    connections: ConnectionLimits = ConnectionLimits()
    #: How long answers in progress may take once the process ends.
    grace: float = 5.0

    def __post_init__(self) -> None:
        if bool(self.tls_cert_file) != bool(self.tls_private_key_file):
            given, missing = "--tls-cert-file", "--tls-private-key-file"
            if self.tls_private_key_file:
                given, missing = missing, given
            raise ServingError(f"{given} is given without {missing}; give both, or neither")
        if self.tls_min_version not in {"", "VersionTLS12", "VersionTLS13"}:
            raise ServingError(
                f"--tls-min-version {self.tls_min_version} is not supported; "
                "use VersionTLS12 (the default) or VersionTLS13"
            )
