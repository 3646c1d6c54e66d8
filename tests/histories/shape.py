"""What a seed decides before anything happens: the configuration, the replicas, what there is, and what will fail."""

import functools
import random
from typing import Any, NamedTuple

from app.settings.load import Settings, load
from tests.histories.faults import CALLS, CONNECTS, MenuItem, draw_menu

_CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: {elect}}}
clientConnection: {{qps: {qps}, burst: 100}}
profiles:
- schedulerName: default-scheduler
  plugins: {{multiPoint: {{disabled: [{disabled}]}}}}
  pluginConfig: [{{name: VolumeBinding, args: {{bindTimeoutSeconds: 8}}}}]
extenders: [{extenders}]
"""
#: What extenders there may be, as configured.
EXTENDERS = {
    "rules": "filterVerb: filter, prioritizeVerb: prioritize, weight: 1",
    "whole nodes": "filterVerb: filter, prioritizeVerb: prioritize, weight: 2",
    "ignorable": "filterVerb: filter, ignorable: true",
    "reserving": "filterVerb: filter, httpTimeout: 2s",
    "binder": "bindVerb: bind, httpTimeout: 2s",
    "filters and binds": "filterVerb: filter, bindVerb: bind",
    "ignorable binder": "bindVerb: bind, ignorable: true",
    "preempts": "filterVerb: filter, preemptVerb: preempt",
}
#: Seconds for which the binders' calls are reckoned with after they were not answered.
PATIENCE = {"binder": 2.0, "filters and binds": 5.0}
_NAMES_ONLY = frozenset(EXTENDERS) - {"whole nodes"}
_BINDERS = frozenset({"binder", "filters and binds", "ignorable binder"})
_VOLUMES = ("VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits")
#: Plugins whose kinds nobody has in these histories: every kind that is watched costs time.
_UNUSED = ("DynamicResources", "PodTopologySpread", "ImageLocality")


class Configuration:
    """A configuration that was read (app.settings.load.Loaded), worked out once for all histories."""

    def __init__(self, text: str) -> None:
        loaded = load(text)
        self.settings: Settings = loaded.settings
        self._profiles = loaded.to_plain()

    def to_plain(self, _capabilities: object = None) -> Any:
        """The profiles."""
        return self._profiles


@functools.cache
def configuration(elect: bool, volumes: bool, extenders: tuple[str, ...]) -> Configuration:
    """One of the few configurations that there are."""
    disabled = (*_UNUSED, *(() if volumes else _VOLUMES))
    webhooks = [
        f"{{urlPrefix: 'http://{name.replace(' ', '-')}/extender', {EXTENDERS[name]}, "
        f"nodeCacheCapable: {str(name in _NAMES_ONLY).lower()}}}"
        for name in extenders
    ]
    text = _CONFIGURATION.format(
        extenders=", ".join(webhooks),
        elect=str(elect).lower(),
        qps=-1,
        disabled=", ".join(f"{{name: {name}}}" for name in disabled),
    )
    return Configuration(text)


class Incident(NamedTuple):
    """Something that happens once. Times in seconds."""

    name: str
    at: float
    seconds: float
    #: The kind of request that brings it about, the first after ``at``: as it is sent, or as the server has carried it out.
    #: Empty for none: it happens at that time.
    trigger: str
    when_done: bool


#: Incidents by name, and how long they last at most, seconds. Those of the lease come last.
INCIDENTS = {
    "API server restarts": 6.0,
    "etcd stops": 10.0,
    "history is compacted": 0.0,
    "process freezes": 30.0,
    "process is killed": 0.0,
    "process is told to stop": 0.0,
    "process is cut off": 25.0,
    "wall clock jumps": 100.0,
    "lease is deleted": 0.0,
    "lease is emptied": 0.0,
    "lease is taken": 20.0,
    "lease is touched": 0.0,
    "lease renewals get stuck": 25.0,
}
#: What incidents are brought about by: the moments at which they matter most.
TRIGGERS = (
    *("bind", "patch status", "delete pod", "update lease", "lookup", "list", "watch", "event"),
    *CONNECTS,
)


class Shape(NamedTuple):
    """The frame of one history. Times in seconds."""

    seed: int
    configuration: Configuration
    elects: bool
    replicas: int
    #: Whether pods have volumes.
    volumes: bool
    extenders: tuple[str, ...]
    #: How long their calls take at most.
    extender_latency: float
    nodes: int
    pods: int
    #: When users stop and everything works again.
    quiet_at: float
    #: What a look at the clock costs.
    cost: float
    menu: list[MenuItem]
    incidents: list[Incident]


def draw(seed: int) -> Shape:
    """The frame that follows from a seed."""
    rng = random.Random(f"shape {seed}")
    elects = rng.random() < 0.7
    replicas = 2 if elects and rng.random() < 0.25 else 1
    volumes = rng.random() < 0.1
    extenders = _draw_extenders(rng) if rng.random() < 0.25 and not volumes else ()
    quiet_at = rng.choice((6.0, 12.0, 25.0))
    return Shape(
        seed=seed,
        configuration=configuration(elects, volumes, extenders),
        elects=elects,
        replicas=replicas,
        volumes=volumes,
        extenders=extenders,
        extender_latency=rng.choice((0.0, 0.05, 1.5)),
        nodes=rng.randint(2, 5),
        pods=rng.choice((3, 4, 4, 5, 5, 6, 8, 12)),
        quiet_at=quiet_at,
        cost=rng.choice((0.0, 0.00002, 0.00002, 0.003)),
        menu=draw_menu(rng, calls=bool(extenders)),
        incidents=_draw_incidents(rng, elects=elects, extenders=bool(extenders), quiet_at=quiet_at),
    )


def _draw_extenders(rng: random.Random) -> tuple[str, ...]:
    """One or two, of which one may bind at most."""
    first = rng.choice(list(EXTENDERS))
    if rng.random() < 0.6:
        return (first,)
    others = EXTENDERS.keys() - {first, "reserving"}
    if first in _BINDERS:
        others -= _BINDERS
    if first == "reserving":  # it would go on choosing nodes that the other refuses
        others &= {"binder", "ignorable binder"}
    return (first, rng.choice(sorted(others)))


def _draw_incidents(
    rng: random.Random, *, elects: bool, extenders: bool, quiet_at: float
) -> list[Incident]:
    """Some incidents."""
    names = [name for name in INCIDENTS if elects or not name.startswith("lease")]
    incidents = []
    for name in rng.choices(names, k=rng.choice((0, 0, 1, 1, 2, 3))):
        at = rng.random() * quiet_at
        seconds = min(INCIDENTS[name] * rng.random(), quiet_at - at)
        kinds = TRIGGERS + CALLS if extenders else TRIGGERS
        trigger = rng.choice(kinds) if rng.random() < 0.6 else ""
        incidents.append(Incident(name, at, seconds, trigger, rng.random() < 0.5))
    return incidents
