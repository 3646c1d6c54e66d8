"""What an extender client is told: one plain dataclass per extender, as the settings convert the configuration file."""

import dataclasses
import enum
import re
from typing import Final

#: Seconds that a call may take when the configuration says 0 (docs/spec/extenders.md#configuration).
DEFAULT_TIMEOUT: Final = 5.0

_PASSWORD: Final = re.compile(r"(?<=://)([^/?#@:]*):[^/?#]*@")


class Verb(enum.StrEnum):
    """What an extender can be asked."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"
    BIND = "bind"


def redacted(url: str) -> str:
    """The URL without a password in it."""
    return _PASSWORD.sub(r"\1:***@", url)


class ExtenderConfigError(ValueError):
    """A configuration with which an extender cannot be called; the text names the extender and the way out."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TLSConfig:
    """extenders[].tlsConfig. Data (PEM) wins over files. Certificates and keys stay out of ``repr``."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = dataclasses.field(default=b"", repr=False)
    key_data: bytes = dataclasses.field(default=b"", repr=False)
    ca_data: bytes = dataclasses.field(default=b"", repr=False)

    @property
    def has_ca(self) -> bool:
        """Whether authorities to trust are named."""
        return bool(self.ca_data or self.ca_file)

    @property
    def has_cert(self) -> bool:
        """Whether a client certificate or a part of one is named."""
        return bool(self.cert_data or self.cert_file)

    @property
    def has_key(self) -> bool:
        """Whether a private key is named."""
        return bool(self.key_data or self.key_file)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BreakerSettings:
    """When to stop calling an extender that does not answer, and when to try again.

    Three failures in a row cost each pod that meets them one timeout; more tell nothing new. The first pause is as
    long as the default timeout, so that a short restart is over by the first probe; it doubles up to a minute, so that a
    dead extender costs one pod in a minute its timeout.
    """

    #: Calls in a row without an answer that open the breaker; 0 switches it off.
    failures: int = 3
    #: Seconds until the first probe.
    open_seconds: float = 5.0
    #: Seconds beyond which the pause between probes no longer doubles.
    max_open_seconds: float = 60.0


@dataclasses.dataclass(frozen=True, slots=True)
class ManagedResource:
    """extenders[].managedResources[]."""

    name: str
    ignored_by_scheduler: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderConfig:
    """One entry of extenders[], and what kube-scheduler's schema has no field for."""

    url_prefix: str = dataclasses.field(repr=False)
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    weight: int = 0
    enable_https: bool = False
    tls: TLSConfig | None = None
    #: Seconds for a whole exchange, the answer's body included; 0 means DEFAULT_TIMEOUT.
    http_timeout: float = 0.0
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    #: True: one call at a time, whatever the verb, and pods that it filters or prioritizes for are decided one after the
    #: other. False: calls overlap. None: pods are decided one after the other while it leaves them no choice.
    serial: bool | None = None
    #: A file whose content is sent as bearer token; read again when it changes.
    bearer_token_file: str = ""
    breaker: BreakerSettings = BreakerSettings()
    #: Refuse to start rather than to talk TLS without verifying the server.
    require_verified_tls: bool = False
    #: Bytes an answer may have, unpacked. 256 MiB hold the echo of 5000 whole nodes of 50 KB, more than any cluster
    #: is known to send, and keep a broken extender from filling the memory of the node.
    max_answer_bytes: int = 256 * 1024 * 1024
    #: Seconds an idle connection is kept. Below what servers wait before they close one (gunicorn 2 s, uvicorn and
    #: Node 5 s), so that it is we who close it.
    keepalive_timeout: float = 1.5

    @property
    def name(self) -> str:
        """The extender's name in messages and metrics: its URL prefix, without a password."""
        return redacted(self.url_prefix)

    @property
    def timeout(self) -> float:
        """Seconds for a whole exchange."""
        return self.http_timeout if self.http_timeout > 0 else DEFAULT_TIMEOUT

    def path(self, verb: Verb) -> str:
        """What the configuration has for a verb, empty when it is not supported."""
        return {
            Verb.FILTER: self.filter_verb,
            Verb.PRIORITIZE: self.prioritize_verb,
            Verb.PREEMPT: self.preempt_verb,
            Verb.BIND: self.bind_verb,
        }[verb]

    def url(self, verb: Verb) -> str:
        """Where a verb is posted to (docs/spec/extenders.md#transport)."""
        return f"{self.url_prefix.rstrip('/')}/{self.path(verb)}"
