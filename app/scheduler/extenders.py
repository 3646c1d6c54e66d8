"""Builds the chain of extender clients from the settings, and determines which whole objects it sends."""

from collections.abc import Callable
from urllib.parse import urlsplit

from app.extender.chain import ExtenderChain
from app.extender.client import HTTPExtender
from app.extender.config import (
    BreakerSettings,
    DryRunConfig,
    ExtenderConfig,
    TLSConfig,
    Verb,
)
from app.extender.events import Sink
from app.extender.interest import LabelsOf
from app.extender.limit import ConcurrencyLimit, Places
from app.extender.memory import AnswerMemory
from app.extender.transport import HTTPTransport
from app.model.selectors import (
    EVERYTHING,
    LabelSelector,
    Requirement,
    Selector,
    compile_selector,
)
from app.settings import args
from app.settings.extension import ExtenderOptions
from app.settings.load import Settings
from app.settings.models import Extender, ExtenderTLSConfig
from app.settings.plain import to_struct


def make_chain(
    settings: Settings,
    sinks: tuple[Sink, Sink],
    may_call: Callable[[], bool],
    memory: AnswerMemory,
    labels_of: LabelsOf,
    transports: Callable[[ExtenderConfig], HTTPTransport] | None = None,
) -> ExtenderChain:
    """The chain of configured extenders; ``may_call`` is asked right before each call, ``labels_of`` is for namespaces.

    ``transports``: by what an extender is called instead of HTTP. How many calls it takes at a time is not found out
    then.

    The second sink is for extenders in shadow and for dry runs. Raises ExtenderConfigError.
    """

    def make(config: ExtenderConfig, ahead: HTTPExtender | None = None) -> HTTPExtender:
        dry = config.shadow or ahead is not None
        return HTTPExtender(
            config,
            sink=sinks[dry],
            transport=None if transports is None else transports(config),
            # A dry run reserves nothing, so whoever asks need not lead.
            may_call=may_call if ahead is None else _always,
            # Large answers to a dry run must not take the places of others.
            memory=AnswerMemory(0) if dry else memory,
            labels_of=labels_of,
            places=None if dry else places[_server(config)],
            ahead=ahead,
        )

    places = _places(settings, found_out=transports is None)
    extenders: list[HTTPExtender] = []
    shadows: list[HTTPExtender] = []
    dry_runs: list[HTTPExtender] = []
    for config in extender_configs(settings):
        if config.shadow:
            shadows.append(make(config.for_dry_runs()))
            continue
        extenders.append(make(config))
        if config.dry_run:
            dry_runs.append(make(config.for_dry_runs(), ahead=extenders[-1]))
    return ExtenderChain(extenders, sinks[0], shadows, dry_runs)


def _always() -> bool:
    return True


def _places(settings: Settings, *, found_out: bool = True) -> dict[tuple[str, str], Places]:
    """The places at each server: as many as the smallest number that is configured there, else as many as are found."""
    configuration, bindings = settings.configuration, settings.extension.max_bindings_in_flight
    servers: dict[tuple[str, str], list[ExtenderConfig]] = {}
    for config in extender_configs(settings):
        if not config.shadow:
            servers.setdefault(_server(config), []).append(config)
    places = {}
    for server, configs in servers.items():
        binds = any(config.bind_verb for config in configs)
        maximum = max(configuration.parallelism, bindings if binds else 1)
        fixed = min((c.fixed_limit for c in configs if c.fixed_limit), default=0)
        fixed = fixed or (0 if found_out else maximum)
        timeout = min(config.timeout for config in configs)
        places[server] = Places(
            ConcurrencyLimit(maximum, fixed=fixed, timeout=timeout, binds=binds)
        )
    return places


def _server(config: ExtenderConfig) -> tuple[str, str]:
    """The scheme, and the host with its port."""
    parts = urlsplit(config.url_prefix)
    return parts.scheme.lower(), parts.netloc.rpartition("@")[2].lower()


def extender_configs(settings: Settings) -> list[ExtenderConfig]:
    """The clients' configurations, in the order of the configuration file."""
    return [_config(*configured, settings) for configured in settings.extenders]


def _config(extender: Extender, options: ExtenderOptions, settings: Settings) -> ExtenderConfig:
    return to_struct(
        extender,
        ExtenderConfig,
        tls=_tls(extender.tls_config),
        serial=options.serial,
        parallelism=options.parallelism,
        bearer_token_file=options.bearer_token_file,
        breaker=to_struct(options.breaker, BreakerSettings),
        pod_selector=_selector(options.pod_selector),
        namespace_selector=_selector(options.namespace_selector),
        profiles=frozenset(options.profiles),
        release_verb=options.release_verb,
        group_verb=options.group_verb,
        answers_for_template=options.answers_for_template,
        shadow=options.shadow,
        dry_run=to_struct(options.dry_run, DryRunConfig),
        require_verified_tls=settings.extension.refuse_insecure_tls,
    )


def _selector(selector: args.LabelSelector) -> Selector:
    expressions = tuple(
        Requirement(each.key, each.operator, each.values) for each in selector.match_expressions
    )
    compiled = compile_selector(LabelSelector(selector.match_labels, expressions))
    return EVERYTHING if compiled.everything else compiled


def _tls(tls: ExtenderTLSConfig | None) -> TLSConfig | None:
    if tls is None:
        return None
    return to_struct(
        tls, TLSConfig, cert_data=tls.cert_pem, key_data=tls.key_pem, ca_data=tls.ca_pem
    )


def selects_namespaces(chain: ExtenderChain) -> bool:
    """Whether the labels of namespaces decide which pods concern an extender."""
    return any(e.config.namespace_selector is not EVERYTHING for e in chain.all)


def wants_whole_nodes(chain: ExtenderChain) -> bool:
    """Whether any extender is sent complete Node objects."""
    return any(
        not e.config.node_cache_capable and (e.supports(Verb.FILTER) or e.supports(Verb.PRIORITIZE))
        for e in (*chain.all, *chain.dry_runs)
    )


def wants_whole_victims(chain: ExtenderChain) -> bool:
    """Whether any extender is sent the complete Pod objects of preemption victims."""
    return any(
        not e.config.node_cache_capable and e.supports(Verb.PREEMPT)
        for e in (*chain.all, *chain.dry_runs)
    )
