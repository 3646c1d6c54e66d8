"""The configuration of an extender's client, as plain records that the settings are converted to."""

import enum
import re
from typing import ClassVar, Final

import msgspec

from app.model.discreet import Discreet
from app.model.selectors import EVERYTHING, Selector

#: Timeout of a call in seconds if the configuration has 0 (docs/spec/extenders.md#configuration).
DEFAULT_TIMEOUT: Final = 5.0

_PASSWORD: Final = re.compile(r"(?<=://)([^/?#@:]*):[^/?#]*@")


class Verb(enum.StrEnum):
    """The verbs of extenders."""

    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"
    BIND = "bind"
    #: Not one of kube-scheduler's: a placement was given up.
    RELEASE = "release"
    #: Not one of kube-scheduler's: filter and prioritize for all pods of a group.
    GROUP = "group"


def redacted(url: str) -> str:
    """The URL without a password in it."""
    return _PASSWORD.sub(r"\1:***@", url)


class ExtenderConfigError(ValueError):
    """A configuration that does not allow calls; the text names the extender and what to change."""


class TLSConfig(Discreet, frozen=True, kw_only=True):
    """extenders[].tlsConfig. Data (PEM) override files. Certificates and keys stay out of ``repr``."""

    SECRETS: ClassVar = frozenset({"cert_data", "key_data", "ca_data"})

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""

    @property
    def has_ca(self) -> bool:
        """Whether there is a CA."""
        return bool(self.ca_data or self.ca_file)

    @property
    def has_cert(self) -> bool:
        """Whether there is a client certificate."""
        return bool(self.cert_data or self.cert_file)

    @property
    def has_key(self) -> bool:
        """Whether there is a private key."""
        return bool(self.key_data or self.key_file)


class BreakerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """When to stop calling an extender that does not answer, and when to try again.

    Each failure costs a pod one timeout, so three in a row are enough. The first pause is as long as the default
    timeout, so that a short restart is over at the first probe; it doubles up to a minute, so that a dead extender
    costs one pod per minute a timeout.
    """

    #: Consecutive calls without an answer that open the breaker; 0 disables it.
    failures: int = 3
    #: Seconds until the first probe.
    open_seconds: float = 5.0
    #: Longest pause between probes, in seconds.
    max_open_seconds: float = 60.0


class ManagedResource(msgspec.Struct, frozen=True):
    """extenders[].managedResources[]."""

    name: str
    ignored_by_scheduler: bool = False


class DryRunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How an extender is asked without reserving anything: the paths that are called, empty for those that are not."""

    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    #: Whether it gets names; None: as otherwise.
    node_cache_capable: bool | None = None

    def __bool__(self) -> bool:
        return bool(self.filter_verb or self.prioritize_verb or self.preempt_verb)


class ExtenderConfig(Discreet, frozen=True, kw_only=True):
    """One entry of extenders[], with the options that kube-scheduler's schema does not have."""

    SECRETS: ClassVar = frozenset({"url_prefix"})

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    preempt_verb: str = ""
    bind_verb: str = ""
    release_verb: str = ""
    group_verb: str = ""
    weight: int = 0
    enable_https: bool = False
    tls: TLSConfig | None = None
    #: Seconds for a whole exchange, including the answer's body; 0 means DEFAULT_TIMEOUT.
    http_timeout: float = 0.0
    node_cache_capable: bool = False
    managed_resources: tuple[ManagedResource, ...] = ()
    ignorable: bool = False

    #: True: one call at a time, of any verb, and pods that it filters or prioritizes are tried one after another.
    #: False: calls overlap. None: pods are tried one after another while it accepts only one of several nodes.
    serial: bool | None = None
    #: About how many pods it is called at the same time; 0: found out.
    parallelism: int = 0
    #: A file whose content is sent as bearer token; read again when it changes.
    bearer_token_file: str = ""
    breaker: BreakerSettings = BreakerSettings()
    #: The labels of the pods that concern it, and of their namespaces.
    pod_selector: Selector = EVERYTHING
    namespace_selector: Selector = EVERYTHING
    #: The scheduler names of the pods that concern it; empty for all.
    profiles: frozenset[str] = frozenset()
    #: What it answers about a pod holds for the pods of its group with an equal spec.
    answers_for_template: bool = False
    #: Its answers are compared with the decisions and not obeyed.
    shadow: bool = False
    dry_run: DryRunConfig = DryRunConfig()
    #: Whether this is the configuration for dry runs of an extender that is called otherwise as well.
    beside: bool = False
    #: Reject a configuration that would use TLS without verifying the server.
    require_verified_tls: bool = False
    #: Bytes of an unpacked answer at most. 256 MiB hold 5000 whole nodes of 50 KB, more than any known cluster has, and
    #: keep a broken extender from filling the memory.
    max_answer_bytes: int = 256 * 1024 * 1024
    #: Seconds for which an idle connection is kept: less than the timeouts of servers (gunicorn 2 s, uvicorn and Node 5
    #: s), so that the client closes it first.
    keepalive_timeout: float = 1.5

    @property
    def name(self) -> str:
        """The extender's name in messages and metrics: its URL prefix, without a password."""
        return redacted(self.url_prefix) + " (dry run)" * self.beside

    def for_dry_runs(self) -> "ExtenderConfig":
        """With the verbs that reserve nothing, and no others."""
        dry, names = self.dry_run, self.dry_run.node_cache_capable
        return msgspec.structs.replace(
            self,
            filter_verb=dry.filter_verb,
            prioritize_verb=dry.prioritize_verb,
            preempt_verb=dry.preempt_verb,
            bind_verb="",
            release_verb="",
            group_verb="",
            node_cache_capable=self.node_cache_capable if names is None else names,
            beside=not self.shadow,
        )

    @property
    def fixed_limit(self) -> int:
        """About how many pods it is called at the same time; 0: found out."""
        return 1 if self.serial else self.parallelism

    @property
    def timeout(self) -> float:
        """Seconds for a whole exchange."""
        return self.http_timeout if self.http_timeout > 0 else DEFAULT_TIMEOUT

    def path(self, verb: Verb) -> str:
        """The configured path of a verb, empty if it is not configured."""
        return {
            Verb.FILTER: self.filter_verb,
            Verb.PRIORITIZE: self.prioritize_verb,
            Verb.PREEMPT: self.preempt_verb,
            Verb.BIND: self.bind_verb,
            Verb.RELEASE: self.release_verb,
            Verb.GROUP: self.group_verb,
        }[verb]

    def url(self, verb: Verb) -> str:
        """The URL of a verb (docs/spec/extenders.md#transport)."""
        return f"{self.url_prefix.rstrip('/')}/{self.path(verb)}"
