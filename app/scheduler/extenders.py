"""The configured extenders: from settings to a chain of clients, and which objects the chain needs whole."""

from collections.abc import Callable

from app.extender.chain import ExtenderChain
from app.extender.client import HTTPExtender
from app.extender.config import (
    BreakerSettings,
    ExtenderConfig,
    ManagedResource,
    TLSConfig,
    Verb,
)
from app.extender.events import Sink
from app.extender.memory import AnswerMemory
from app.settings.extension import ExtenderOptions
from app.settings.load import Settings
from app.settings.models import Extender


def make_chain(
    settings: Settings, sink: Sink, may_call: Callable[[], bool], memory: AnswerMemory
) -> ExtenderChain:
    """The configured extenders; ``may_call`` is asked right before each call. Raises ExtenderConfigError."""
    extenders = [
        HTTPExtender(config, sink=sink, may_call=may_call, memory=memory)
        for config in extender_configs(settings)
    ]
    return ExtenderChain(extenders, sink)


def extender_configs(settings: Settings) -> list[ExtenderConfig]:
    """What the client is to know of each configured extender, in the order of the configuration."""
    return [_config(*configured, settings) for configured in settings.extenders]


def _config(extender: Extender, options: ExtenderOptions, settings: Settings) -> ExtenderConfig:
    return ExtenderConfig(
        url_prefix=extender.url_prefix,
        filter_verb=extender.filter_verb,
        prioritize_verb=extender.prioritize_verb,
        preempt_verb=extender.preempt_verb,
        bind_verb=extender.bind_verb,
        weight=extender.weight,
        enable_https=extender.enable_https,
        tls=_tls(extender),
        http_timeout=extender.http_timeout.seconds,
        node_cache_capable=extender.node_cache_capable,
        managed_resources=tuple(
            ManagedResource(r.name, r.ignored_by_scheduler) for r in extender.managed_resources
        ),
        ignorable=extender.ignorable,
        serial=options.serial,
        bearer_token_file=options.bearer_token_file,
        breaker=BreakerSettings(
            failures=options.breaker.failures,
            open_seconds=options.breaker.open_seconds.seconds,
            max_open_seconds=options.breaker.max_open_seconds.seconds,
        ),
        require_verified_tls=settings.extension.refuse_insecure_tls,
    )


def _tls(extender: Extender) -> TLSConfig | None:
    tls = extender.tls_config
    if tls is None:
        return None
    return TLSConfig(
        insecure=tls.insecure,
        server_name=tls.server_name,
        cert_file=tls.cert_file,
        key_file=tls.key_file,
        ca_file=tls.ca_file,
        cert_data=tls.cert_pem,
        key_data=tls.key_pem,
        ca_data=tls.ca_pem,
    )


def wants_whole_nodes(chain: ExtenderChain) -> bool:
    """Whether any extender is sent complete Node objects."""
    return any(
        not e.config.node_cache_capable and (e.supports(Verb.FILTER) or e.supports(Verb.PRIORITIZE))
        for e in chain.extenders
    )


def wants_whole_victims(chain: ExtenderChain) -> bool:
    """Whether any extender is sent the complete Pod objects of preemption victims."""
    return any(
        not e.config.node_cache_capable and e.supports(Verb.PREEMPT) for e in chain.extenders
    )
