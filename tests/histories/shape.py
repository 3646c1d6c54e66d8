"""What a seed decides before anything happens: the configuration, the replicas, what there is, and what will fail."""

import functools
import random
from collections.abc import Collection
from typing import Any, NamedTuple

from app.settings.load import Settings, load
from tests.histories.extenders import LIMITED, LOCKING
from tests.histories.faults import (
    CALLS,
    CONNECTS,
    REQUEST_FAULTS,
    MenuItem,
    draw_delays,
    draw_doubts,
    draw_menu,
)

#: An extender that chooses and reserves, and is told which placements were given up; only in contests.
_RELEASING = "filterVerb: filter, httpTimeout: 2s"
_RELEASES = """
---
apiVersion: aiokube-scheduler.io/v1alpha1
kind: AiokubeSchedulerConfiguration
extenders: [{urlPrefix: 'http://releasing/extender', releaseVerb: release}]
"""
#: An extender that is called for one pod at a time; only in contests.
IN_ORDER = "in order"
_SERIAL = _RELEASES.replace("releasing", "in-order").replace("releaseVerb: release", "serial: true")
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
    LIMITED: "filterVerb: filter, bindVerb: bind",
    LOCKING: "filterVerb: filter, bindVerb: bind",
}
#: Those that are drawn apart: they need many pods.
_BUSY = (LIMITED, LOCKING)
#: Seconds for which the binders' calls are reckoned with after they were not answered.
PATIENCE = {"binder": 2.0, "filters and binds": 5.0, LIMITED: 5.0, LOCKING: 5.0}
#: Extenders that are used together: one of them may bind at most, and none refuses what "reserving" chooses.
_PAIRS = (
    ("rules", "preempts"),
    ("whole nodes", "binder"),
    ("ignorable", "filters and binds"),
    ("reserving", "ignorable binder"),
    ("preempts", "ignorable binder"),
)
_VOLUMES = ("VolumeBinding", "VolumeRestrictions", "VolumeZone", "NodeVolumeLimits")
#: Plugins whose kinds nobody has in these histories: every kind that is watched costs time.
_UNUSED = ("PodTopologySpread", "ImageLocality")
_DEVICES = ("DynamicResources",)


class Configuration:
    """A configuration that was read (app.settings.load.Loaded), worked out once for all histories."""

    def __init__(self, text: str) -> None:
        self._loaded = load(text)
        self.settings: Settings = self._loaded.settings
        self._profiles: dict[frozenset[str], Any] = {}

    def to_plain(self, _capabilities: object = None, features: Collection[str] = ()) -> Any:
        """The profiles with these feature gates."""
        gates = frozenset(features)
        if gates not in self._profiles:
            self._profiles[gates] = self._loaded.to_plain(features=gates)
        return self._profiles[gates]


@functools.cache
def configuration(
    elect: bool, volumes: bool, devices: bool, extenders: tuple[str, ...]
) -> Configuration:
    """One of the few configurations that there are."""
    disabled = (*_UNUSED, *(() if volumes else _VOLUMES), *(() if devices else _DEVICES))
    webhooks = [
        f"{{urlPrefix: 'http://{name.replace(' ', '-')}/extender', {EXTENDERS.get(name, _RELEASING)}, "
        f"nodeCacheCapable: {str(name != 'whole nodes').lower()}}}"
        for name in extenders
    ]
    text = _CONFIGURATION.format(
        extenders=", ".join(webhooks),
        elect=str(elect).lower(),
        qps=-1,
        disabled=", ".join(f"{{name: {name}}}" for name in disabled),
    )
    if IN_ORDER in extenders:
        return Configuration(text + _SERIAL)
    return Configuration(text + _RELEASES if "releasing" in extenders else text)


class Incident(NamedTuple):
    """Something that happens once. Times in seconds."""

    name: str
    at: float
    seconds: float
    #: The kind of request that brings it about, the first after ``at``: as it is sent, or as the server has carried it
    #: out. Empty for none: it happens at that time.
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
    "users act": 0.0,
    "a pod goes": 0.0,
    "lease is deleted": 0.0,
    "lease is emptied": 0.0,
    "lease is taken": 20.0,
    "lease is touched": 0.0,
    "lease renewals get stuck": 25.0,
}
#: Those after which a process no longer leads.
_LAPSES = (
    "lease renewals get stuck",
    "lease renewals get stuck",
    "process freezes",
    "process is cut off",
    "lease is taken",
)
#: What incidents are brought about by: the moments at which they matter most.
TRIGGERS = (
    *("bind", "patch status", "delete pod", "update lease", "lookup", "list", "watch", "event"),
    *CONNECTS,
)


#: What a history is about, and how many of them are: faults and incidents that only together do harm are drawn
#: together.
ANYTHING, DOUBTS, LAPSES, MID_ATTEMPT = THEMES = (
    "anything",
    "bindings in doubt",
    "the lease lapses",
    "changes in mid-attempt",
)
_WEIGHTS = (4, 2, 2, 2)
#: The theme of contests (tests.histories.gangs), which have seeds of their own.
CONTEST = "gangs compete"
#: When users stop and everything works again, seconds: leases take their time.
_LENGTHS = {
    ANYTHING: (5.0, 8.0, 12.0, 20.0),
    DOUBTS: (5.0, 8.0, 12.0),
    LAPSES: (20.0,),
    MID_ATTEMPT: (5.0, 8.0),
}


class Shape(NamedTuple):
    """The frame of one history. Times in seconds."""

    seed: int
    theme: str
    configuration: Configuration
    elects: bool
    replicas: int
    #: Whether pods have volumes.
    volumes: bool
    #: Whether pods have devices.
    devices: bool
    extenders: tuple[str, ...]
    #: How long their calls take at most.
    extender_latency: float
    nodes: int
    pods: int
    #: How many of the pods have a priority.
    urgent: float
    #: What pods request of the CPU, and for how many pods nodes have places.
    requests: tuple[str, ...]
    places: tuple[str, ...]
    #: When users stop and everything works again.
    quiet_at: float
    #: What a look at the clock costs.
    cost: float
    menu: list[MenuItem]
    incidents: list[Incident]
    #: How many pod groups there are.
    gangs: int = 0

    @property
    def features(self) -> frozenset[str]:
        """The feature gates that are turned on."""
        return frozenset({"GenericWorkload", "GangScheduling"} if self.gangs else ())


#: How many pods users create.
_PODS = (2, 3, 4, 4, 5, 5, 6, 10)
_PODS_FEW = (3, 3, 4, 5)


def draw(seed: int) -> Shape:
    """The frame that follows from a seed."""
    rng = random.Random(f"shape {seed}")
    [theme] = rng.choices(THEMES, _WEIGHTS)
    elects = theme == LAPSES or rng.random() < 0.6
    volumes = theme == ANYTHING and rng.random() < 0.2
    many = theme == MID_ATTEMPT or (not volumes and rng.random() < 0.25)
    extenders = _draw_extenders(rng, theme) if many else ()
    crowded = "preempts" in extenders
    quiet_at = rng.choice(_LENGTHS[theme])
    shape = Shape(
        seed=seed,
        theme=theme,
        configuration=configuration(elects, volumes, False, extenders),
        elects=elects,
        replicas=2 if elects and rng.random() < 0.25 else 1,
        volumes=volumes,
        devices=False,
        extenders=extenders,
        extender_latency=1.5 if theme == MID_ATTEMPT else rng.choice((0.0, 0.05, 1.5)),
        nodes=1 if crowded else rng.randint(1, 2 if theme == MID_ATTEMPT else 4),
        pods=rng.choice(_PODS_FEW if theme == MID_ATTEMPT else _PODS),
        urgent=0.5 if theme == MID_ATTEMPT or crowded else 0.3 if volumes else 0.1,
        requests=("100m", "500m") if theme == MID_ATTEMPT else ("100m", "500m", "1", "2"),
        places=("2",) if crowded else ("2", "4", "8"),
        quiet_at=quiet_at,
        cost=rng.choice((0.0, 0.00002, 0.00002, 0.003)),
        menu=_draw_faults(rng, theme, calls=bool(extenders)),
        incidents=_draw_incidents(
            rng, theme, elects=elects, extenders=extenders, quiet_at=quiet_at
        ),
    )
    return _with_unseen_changes(_with_many_pods(_with_devices(shape)))


def _with_many_pods(shape: Shape) -> Shape:
    """Some histories with extenders get one that is limited, or one that locks, and more pods."""
    rng = random.Random(f"crowd {shape.seed}")
    if not shape.extenders or shape.volumes or shape.devices or rng.random() > 0.1:
        return shape
    extenders = (rng.choice(_BUSY),)
    return shape._replace(
        configuration=configuration(shape.elects, False, False, extenders),
        extenders=extenders,
        extender_latency=min(shape.extender_latency, 0.05),
        nodes=max(shape.nodes, 2),
        pods=30 if extenders == (LIMITED,) else 12,
        requests=("10m", "100m"),
        places=("16",),
    )


def _with_devices(shape: Shape) -> Shape:
    """Some histories get devices, and faults of the requests that allocate them."""
    rng = random.Random(f"devices {shape.seed}")
    if shape.theme not in {ANYTHING, DOUBTS} or shape.volumes or rng.random() > 0.1:
        return shape
    kinds = frozenset(rng.choice((("patch volume",), ("patch volume", "get claim"), ("list",))))
    possible = [fault for fault, hit in REQUEST_FAULTS.items() if hit >= kinds]
    fault = MenuItem(rng.choice(possible), kinds, rng.choice((0.2, 0.5)))
    return shape._replace(
        configuration=configuration(shape.elects, False, True, shape.extenders),
        devices=True,
        urgent=max(shape.urgent, rng.choice((0.1, 0.5))),
        # Searches for devices are limited in time, and look at the clock very often.
        cost=min(shape.cost, 0.00002),
        menu=[*shape.menu, fault],
    )


def _with_unseen_changes(shape: Shape) -> Shape:
    """In some histories objects change while nobody watches, and only lists tell of it."""
    rng = random.Random(f"unseen {shape.seed}")
    if rng.random() > 0.15:
        return shape
    at = rng.uniform(0.3, 1.0) * shape.quiet_at * 0.8
    unseen = Incident("objects change unseen", at, rng.uniform(0.2, 3.0), "", False)
    return shape._replace(incidents=[*shape.incidents, unseen])


def _draw_faults(rng: random.Random, theme: str, *, calls: bool) -> list[MenuItem]:
    """The faults of a theme, and some others."""
    if theme == ANYTHING:
        return draw_menu(rng, calls=calls, choices=(0, 1, 1, 2, 2, 3, 4))
    menu = draw_menu(rng, calls=calls, choices=(0, 0, 1, 2))
    if theme == DOUBTS:
        return draw_doubts(rng) + menu
    return draw_delays(rng) + menu if theme == LAPSES else menu


def _draw_extenders(rng: random.Random, theme: str) -> tuple[str, ...]:
    """One or two."""
    if rng.random() < 0.3:
        return rng.choice(_PAIRS)
    if theme == MID_ATTEMPT and rng.random() < 0.75:
        return (rng.choice(("preempts", "preempts", "reserving")),)
    return (rng.choice([name for name in EXTENDERS if name not in _BUSY]),)


def _draw_incidents(
    rng: random.Random, theme: str, *, elects: bool, extenders: tuple[str, ...], quiet_at: float
) -> list[Incident]:
    """Those of a theme, and some others."""
    names = [name for name in INCIDENTS if elects or not name.startswith("lease")]
    count = rng.choice((0, 0, 1, 1, 2, 3) if theme == ANYTHING else (0, 0, 1))
    drawn = [(name, "") for name in rng.choices(names, k=count)]
    if theme == LAPSES:
        drawn.append((rng.choice(_LAPSES), ""))
    elif theme == MID_ATTEMPT:
        acts = ("a pod goes", "a pod goes", "users act")
        call = "extender preempt" if "preempts" in extenders else "extender filter"
        drawn += [(rng.choice(acts), call) for _ in range(rng.randint(1, 3))]
    incidents = []
    for name, bound_to in drawn:
        at = rng.random() * quiet_at
        seconds = min(INCIDENTS[name] * rng.random(), quiet_at - at)
        kinds = TRIGGERS + CALLS if extenders else TRIGGERS
        trigger = bound_to or (rng.choice(kinds) if rng.random() < 0.6 else "")
        incidents.append(Incident(name, at, seconds, trigger, rng.random() < 0.5))
    return incidents
