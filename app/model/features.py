"""Which rules of kube-scheduler hold: chosen by version and feature gates when a process starts, then frozen.

A plugin looks once, when its profile is built, whether a rule is in ``Features.rules``; no decision asks for a version.
"""

import enum
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

import msgspec

from app.model.gates import GATES, NEEDS, OTHERS, VERSIONS
from app.model.pod_groups_v1alpha2 import GANGS, WHOLE_PREEMPTION

#: The version of the recorded decisions, and of API servers that are older or do not say what they are.
OLDEST: Final = VERSIONS[0]
NEWEST: Final = VERSIONS[-1]

TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})

#: The oldest version that kube-scheduler 1.36 takes for --emulated-version. Those before OLDEST count as that.
_FLOOR: Final = "1.33"
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?")
#: These gates were merged into GenericWorkload in 1.37.
_MERGED: Final[Mapping[str, str]] = {
    GANGS: "GenericWorkload",
    WHOLE_PREEMPTION: "GenericWorkload",
}
#: Gates that stand for all others of a stage.
_OF_STAGES: Final = frozenset({"AllAlpha", "AllBeta"})


class Rule(enum.StrEnum):
    """A rule that differs between versions, by the name that people see."""

    StorageScores = "storage-scores"
    MissingDriver = "missing-driver"
    ImageVolumes = "image-volumes"
    NamespacesOnce = "namespaces-once"
    AnyTermWakes = "any-term-wakes"
    SumsOfResize = "sums-of-resize"
    OneBudget = "one-budget"
    PreemptionMessage = "preemption-message"
    TaintsWakeFew = "taints-wake-few"
    OwnEvents = "own-events"
    DeletedClaimsWake = "deleted-claims-wake"
    QuietDevices = "quiet-devices"
    CountersOnce = "counters-once"
    EveryDevice = "every-device"
    EachDistinct = "each-distinct"
    ConfigOnce = "config-once"
    NamedDevices = "named-devices"
    NamedRequests = "named-requests"
    CapacityErrors = "capacity-errors"
    BindMountOptions = "bind-mount-options"
    QueuedEntities = "queued-entities"
    DeviceTaintRules = "device-taint-rules"
    EmptyBudgetSelectors = "empty-budget-selectors"
    EmptySpreadSelectors = "empty-spread-selectors"
    EmptyVictims = "empty-victims"
    UnsettledPools = "unsettled-pools"


class RuleFacts(msgspec.Struct, frozen=True):
    """When a rule holds, and what it concerns."""

    #: The first version that has the rule without a gate.
    since: str
    #: What it says, as a sentence without a full stop.
    text: str
    #: The plugins whose verdicts or scores it changes.
    plugins: tuple[str, ...] = ()
    #: The gate that it needs; ``since`` is then the version in which this is on by default.
    gate: str = ""


_RESOURCES: Final = ("NodeResourcesFit", "NodeResourcesBalancedAllocation")

#: Every rule with its facts (docs/spec/kubernetes-1.37.md).
RULES: Final[Mapping[Rule, RuleFacts]] = {
    Rule.StorageScores: RuleFacts(
        "1.37",
        "nodes are scored by the storage that is left for unbound claims",
        ("VolumeBinding",),
        "StorageCapacityScoring",
    ),
    Rule.MissingDriver: RuleFacts(
        "1.37",
        "a node without a CSI driver that asks for it is rejected",
        ("NodeVolumeLimits",),
        "VolumeLimitScaling",
    ),
    Rule.ImageVolumes: RuleFacts(
        "1.37", "image volumes count in the size that images may have", ("ImageLocality",)
    ),
    Rule.NamespacesOnce: RuleFacts(
        "1.37",
        "a namespace selector of the incoming pod selects namespaces by their labels only",
        ("InterPodAffinity",),
    ),
    Rule.AnyTermWakes: RuleFacts(
        "1.37", "a pod wakes when any of its anti-affinity terms selects the pod that went"
    ),
    Rule.SumsOfResize: RuleFacts(
        "1.37",
        "a pod in a resize counts with the largest of three sums, not with the largest of each container",
        _RESOURCES,
    ),
    Rule.OneBudget: RuleFacts(
        "1.37",
        "a victim counts against the first disruption budget that it violates",
        ("DefaultPreemption",),
    ),
    Rule.PreemptionMessage: RuleFacts(
        "1.37", "a preemptor's message says how many victims there are on which node"
    ),
    Rule.TaintsWakeFew: RuleFacts(
        "1.37", "a change of taints wakes only pods that taints or topology kept away"
    ),
    Rule.OwnEvents: RuleFacts("1.37", "changes of the pending pod itself are events of their own"),
    Rule.DeletedClaimsWake: RuleFacts(
        "1.37", "the end of an allocated ResourceClaim wakes pods that wait for devices"
    ),
    Rule.DeviceTaintRules: RuleFacts(
        "1.37",
        "DeviceTaintRules taint devices",
        ("DynamicResources",),
        "DRADeviceTaintRules",
    ),
    Rule.QuietDevices: RuleFacts("1.37", "DynamicResources adds nothing when it cannot help"),
    Rule.CountersOnce: RuleFacts(
        "1.37",
        "shared counters belong to one driver's pool; a device takes them once, and gives back what it does not use",
        ("DynamicResources",),
    ),
    Rule.EveryDevice: RuleFacts(
        "1.37",
        "a request for all devices fails while one of them has too little capacity left",
        ("DynamicResources",),
    ),
    Rule.EachDistinct: RuleFacts(
        "1.37",
        "distinctAttribute compares all devices, those for one request as well",
        ("DynamicResources",),
    ),
    Rule.ConfigOnce: RuleFacts(
        "1.37", "an allocation lists each configuration once, for all requests without their names"
    ),
    Rule.NamedDevices: RuleFacts("1.37", "the error of a device selector names the device"),
    Rule.NamedRequests: RuleFacts(
        "1.37", "the error of a claim for too many devices names the request"
    ),
    Rule.CapacityErrors: RuleFacts(
        "1.37",
        "an amount of a device's capacity that cannot be rounded within 64 bits, or is negative, is an error of the "
        "claim",
        ("DynamicResources",),
    ),
    Rule.BindMountOptions: RuleFacts(
        "1.37",
        "a pod with bindMountOptions needs a node that declares VolumeBindMountOptions",
        ("NodeDeclaredFeatures",),
    ),
    Rule.QueuedEntities: RuleFacts(
        "1.37",
        "metrics count what waits as entities, and the claims that are created by their owner",
    ),
    Rule.EmptyBudgetSelectors: RuleFacts(
        "1.38",
        "a disruption budget with an empty selector protects every pod of its namespace",
        ("DefaultPreemption",),
    ),
    Rule.EmptySpreadSelectors: RuleFacts(
        "1.38",
        "a topology spread constraint with an empty selector counts every pod",
        ("PodTopologySpread",),
    ),
    Rule.EmptyVictims: RuleFacts(
        "1.38",
        "a node that only an extender has rejected is a candidate of a preemption without victims",
        ("DefaultPreemption",),
    ),
    Rule.UnsettledPools: RuleFacts(
        "1.38",
        "a request for all devices is an error no longer while a pool is updated or invalid, but keeps from its nodes",
        ("DynamicResources",),
    ),
}


class FeaturesError(ValueError):
    """--emulated-version or --feature-gates cannot be used; the text is kube-scheduler's, if it refuses them too."""


class Features(msgspec.Struct, frozen=True):
    """The gates that are on and the rules that hold. A collection of the former."""

    version: str = OLDEST
    """One of VERSIONS."""
    gates: frozenset[str] = frozenset()
    """The feature gates that are on, of those that can be on and off here (app.model.gates)."""
    rules: frozenset[Rule] = frozenset()

    def __contains__(self, gate: object) -> bool:
        return gate in self.gates

    def __iter__(self) -> Iterator[str]:
        return iter(self.gates)

    def __len__(self) -> int:
        return len(self.gates)

    @classmethod
    def of(
        cls, version: str = OLDEST, gates: Collection[str] | Mapping[str, bool] = ()
    ) -> "Features":
        """Those of a version with these gates set: by name, or names that are on.

        Raises FeaturesError for gates that kube-scheduler of this version refuses, or that are not built.
        """
        given = gates if isinstance(gates, Mapping) else dict.fromkeys(gates, True)
        mistakes = _mistakes(version, given)
        if mistakes:
            raise FeaturesError(mistakes[0] if len(mistakes) == 1 else f"[{', '.join(mistakes)}]")
        enabled = frozenset(name for name in GATES if _enabled(name, version, given))
        rules = (rule for rule, facts in RULES.items() if _holds(facts, version, enabled))
        able = frozenset(name for name in enabled if GATES[name].switches)
        return cls(version, able, frozenset(rules))

    def changed_to(self, other: "Features") -> tuple[Rule, ...]:
        """The rules that hold in one of both only, in the order of RULES."""
        return tuple(rule for rule in RULES if (rule in self.rules) is not (rule in other.rules))

    def __str__(self) -> str:
        gates = f" with {', '.join(sorted(self.gates))}" if self.gates else ""
        return f"{self.version}{gates}"


#: The rules of 1.36, of which decisions were recorded.
RECORDED: Final = Features()


def _holds(facts: RuleFacts, version: str, enabled: Collection[str]) -> bool:
    return facts.gate in enabled if facts.gate else _number(version) >= _number(facts.since)


def _number(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _enabled(name: str, version: str, given: Mapping[str, bool]) -> bool:
    known = (GATES.get(name) or OTHERS[name]).versions.get(version)
    if known is not None:
        return given.get(name, known.default)
    merged = _MERGED.get(name)
    return merged is not None and version != OLDEST and _enabled(merged, version, given)


def _mistakes(version: str, given: Mapping[str, bool]) -> list[str]:
    """Why kube-scheduler of this version, or this one, would not start with these gates."""
    found = []
    for name, value in given.items():
        gate = GATES.get(name) or OTHERS.get(name)
        known = None if gate is None else gate.versions.get(version)
        if name in _OF_STAGES:
            if value:
                found.append(
                    f"cannot set feature gate {name} to true: not everything of this stage is built here"
                )
        elif gate is None or known is None:
            # As there: the first unknown name is the only mistake that is reported.
            return [f"unrecognized feature gate: {name}"]
        elif known.locked and value is not known.default:
            found.append(
                f"cannot set feature gate {name} to {_go(value)}, feature is locked to {_go(known.default)}"
            )
        elif value not in gate.done:
            always = "off" if value else "on"
            found.append(
                f"cannot set feature gate {name} to {_go(value)}: here it is always {always}"
            )
    return found or list(_missing(version, given))


def _missing(version: str, given: Mapping[str, bool]) -> Iterator[str]:
    for name, needed in NEEDS.items():
        if not given.get(name):
            continue
        known = (each for each in needed if not _of_another(each, version))
        gates = [each for each in known if not _enabled(each, version, given)]
        if gates:
            yield f"{name} is enabled, but depends on features that are disabled: [{' '.join(gates)}]"


def _go(value: bool) -> str:
    return "true" if value else "false"


# ---------------------------------------------------------------- flags


def read_gates(text: str | None) -> dict[str, bool]:
    """The gates in --feature-gates; ``kube:`` before a name is the default component. The last value of a name counts.

    Raises FeaturesError.
    """
    values: dict[str, bool] = {}
    for part in filter(None, map(str.strip, (text or "").split(","))):
        name, equals, value = part.partition("=")
        component, colon, own = name.partition(":")
        if colon and component.strip() != "kube":
            raise FeaturesError(f"component not registered: {component.strip()}")
        name, value = (own if colon else name).strip(), value.strip()
        if not equals:
            raise FeaturesError(f"missing bool value for {name}")
        if value not in TRUE | FALSE:
            raise FeaturesError(
                f'invalid value of {name}={value}, err: strconv.ParseBool: parsing "{value}": invalid syntax'
            )
        values[name] = value in TRUE
    return values


def read_version(text: str) -> str:
    """The version in --emulated-version, such as ``1.37`` or ``kube=1.37``. Raises FeaturesError."""
    versions: dict[str, str] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        component, equals, given = part.partition("=")
        if not equals:
            component, given = "kube", component
        component, given = component.strip(), given.strip()
        found = _VERSION.fullmatch(given)
        if found is None:
            raise FeaturesError(f'could not parse "{given}" as version')
        version = f"{int(found[1])}.{int(found[2])}"
        if int(found[3] or 0):
            raise FeaturesError(f"patch version not allowed, got: {component}={given}")
        if component in versions:
            raise FeaturesError(
                f"duplicate version flag, {component}={versions[component]} and {component}={version}"
            )
        versions[component] = version
    for component in versions:
        if component != "kube":
            raise FeaturesError(f"component not registered: {component}")
    version = versions.get("kube", OLDEST)
    if not _number(_FLOOR) <= _number(version) <= _number(NEWEST):
        raise FeaturesError(f"emulation version {version} is not between [{_FLOOR}, {NEWEST}]")
    return version_for(version)


def version_for(server: str) -> str:
    """The version whose rules go with an API server (``v1.37.2-gke.1``): its own, else the nearest one."""
    found = _VERSION.match(server)
    if found is None:
        return OLDEST
    number = (int(found[1]), int(found[2]))
    return max((v for v in VERSIONS if _number(v) <= number), key=_number, default=OLDEST)


def check_gates(gates: Mapping[str, bool]) -> None:
    """Raises FeaturesError for gates that no version takes: with the text of the oldest that knows them all."""
    whole = [version for version in VERSIONS if len(known_in(version, gates)) == len(gates)]
    errors = []
    for version in whole or VERSIONS:
        try:
            Features.of(version, known_in(version, gates))
        except FeaturesError as error:
            errors.append(error)
        else:
            return
    raise errors[0]


def known_in(version: str, gates: Mapping[str, bool]) -> dict[str, bool]:
    """The gates without those of other versions: the API server may have been upgraded since they were chosen."""
    return {name: value for name, value in gates.items() if not _of_another(name, version)}


def _of_another(name: str, version: str) -> bool:
    gate = GATES.get(name) or OTHERS.get(name)
    return gate is not None and version not in gate.versions


def as_features(gates: Collection[str]) -> Features:
    """Features as they are; of mere names of gates those of OLDEST. Raises FeaturesError."""
    return gates if isinstance(gates, Features) else Features.of(OLDEST, gates)
