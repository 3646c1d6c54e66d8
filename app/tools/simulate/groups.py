"""Pod groups in a simulation: which API the files use for them, and which groups have enough pods with a node in the
end.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from app.model.pod_groups import CLAIMS, GROUP_LABEL, LabelledPodGroup, PodGroup
from app.model.pod_groups_v1alpha2 import GANGS, WHOLE_PREEMPTION
from app.sim import EmbeddedCluster, ManifestError
from app.sim.features import ServedFeatures
from app.sim.objects import group_name, has_ended
from app.sim.resources.custom import kinds_of
from app.sim.resources.kinds import CUSTOM_RESOURCE_DEFINITIONS, OPTIONAL_KINDS, PODS, Kind
from app.sim.resources.pod_groups import V1BETA1
from app.sim.store import Object
from app.tools.simulate.result import GroupResult

DEFINITION: Final[Object] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"podgroups.{LabelledPodGroup.GROUP}"},
    "spec": {
        "group": LabelledPodGroup.GROUP,
        "scope": "Namespaced",
        "names": {
            "kind": "PodGroup",
            "listKind": "PodGroupList",
            "plural": "podgroups",
            "singular": "podgroup",
        },
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
"""Defines PodGroups of scheduling.x-k8s.io, where the files have some."""

GROUP_KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.group_version, kind.kind): kind
    for kind in (
        *(kind for kinds in OPTIONAL_KINDS.values() for kind in kinds),
        *(kind for kind, _ in kinds_of(DEFINITION)),
    )
}
"""(apiVersion, kind) of the PodGroups and Workloads that can be read."""

#: The gates without which groups or their topology constraints have no effect.
_GATES: Final = frozenset({"GenericWorkload", GANGS, "TopologyAwareWorkloadScheduling"})
_WHOLE: Final = WHOLE_PREEMPTION
#: What pods of a gang say that have room themselves.
_OTHERS_FAILED: Final = re.compile(r"pod group is |minCount \(|0/\d+ placements are available")


class GroupName(NamedTuple):
    """Names a group: the group of its API, its namespace and its name."""

    api: str
    namespace: str
    name: str


class UsedGroups(NamedTuple):
    """What the files use."""

    features: ServedFeatures
    custom: bool
    """Whether there are PodGroups of scheduling.x-k8s.io."""


def used_groups(values: Iterable[Object]) -> UsedGroups:
    """What these objects use. Raises ManifestError for several versions of scheduling.k8s.io."""
    versions, custom, named, whole, share = set(), False, False, False, False
    for value in values:
        kind = GROUP_KINDS.get((value["apiVersion"], value["kind"]))
        if kind is None:
            named = named or _names_group(value)
        elif kind.group == LabelledPodGroup.GROUP:
            custom = True
        else:
            versions.add(kind.group_version)
            whole = whole or _is_whole(value.get("spec"))
            share = share or _has_claims(value.get("spec"))
    if len(versions) > 1:
        raise ManifestError(f"PodGroups of several versions: {', '.join(sorted(versions))}")
    if not versions and not named:
        return UsedGroups(ServedFeatures(), custom)
    gates = _GATES | ({_WHOLE} if whole else set()) | ({CLAIMS} if share else set())
    return UsedGroups(
        ServedFeatures(gates=gates, versions=frozenset(versions or {V1BETA1})), custom
    )


def _names_group(value: Object) -> bool:
    """Whether a pod, or the template of a workload, names a group of scheduling.k8s.io."""
    spec = value.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    inner = template.get("spec") if isinstance(template, dict) else None
    return any(isinstance(each, dict) and "schedulingGroup" in each for each in (spec, inner))


def _is_whole(spec: Any) -> bool:
    """Whether a group has fields that exist with the gate for whole groups only, and are not the defaults."""
    if not isinstance(spec, dict):
        return False
    mode = spec.get("disruptionMode")
    return mode == "PodGroup" or (isinstance(mode, dict) and "all" in mode) or "priority" in spec


def _has_claims(spec: Any) -> bool:
    """Whether a group has claims that its pods share."""
    return isinstance(spec, dict) and bool(spec.get("resourceClaims"))


def serve_custom_groups(cluster: EmbeddedCluster) -> None:
    """Has the cluster serve PodGroups of scheduling.x-k8s.io."""
    cluster.apply(CUSTOM_RESOURCE_DEFINITIONS, DEFINITION)


class SimulatedGroups:
    """The groups of an embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._api: Final = cluster.api

    def held(self) -> Mapping[str, str]:
        """Pods (``namespace/name``) that are not tried because of their group -> why: it does not exist or has too few
        pods.
        """
        return {
            _key(pod): why
            for key, pods in self._pods().items()
            if (why := self._incomplete(key, pods))
            for pod in pods
        }

    def rejected(self) -> int:
        """How many pods of groups were rejected: these may be tried again without a change."""
        return sum(bool(_message(pod)) for pods in self._pods().values() for pod in pods)

    def results(self) -> list[GroupResult]:
        """All groups that exist or have pods."""
        pods = self._pods()
        existing = {key: None for kind in self._kinds() for key in self._existing(kind)}
        return [self._result(key, pods.get(key, [])) for key in {**existing, **pods}]

    # ------------------------------------------------------------ parts

    def _kinds(self) -> Iterator[Kind]:
        return (kind for kind in self._api.kinds if kind.kind == "PodGroup")

    def _existing(self, kind: Kind) -> Iterator[GroupName]:
        for record in self._api.store[kind.storage].ordered():
            metadata = record.value["metadata"]
            yield GroupName(kind.group, metadata["namespace"], metadata["name"])

    def _pods(self) -> Mapping[GroupName, list[Object]]:
        """The pods of each group that have not ended."""
        found: dict[GroupName, list[Object]] = defaultdict(list)
        served = {kind.group for kind in self._kinds()}
        if served:
            for record in self._api.store[PODS.storage].ordered():
                key = self._key_of(record.value)
                if key is not None and key.api in served and not has_ended(record.value):
                    found[key].append(record.value)
        return found

    @staticmethod
    def _key_of(pod: Object) -> GroupName | None:
        metadata = pod["metadata"]
        if name := group_name(pod):
            return GroupName(PodGroup.GROUP, metadata["namespace"], name)
        label = (metadata.get("labels") or {}).get(GROUP_LABEL)
        return GroupName(LabelledPodGroup.GROUP, metadata["namespace"], label) if label else None

    def _spec(self, key: GroupName) -> Object | None:
        for kind in self._kinds():
            if kind.group == key.api:
                record = self._api.find(kind, key.namespace, key.name)
                return None if record is None else dict(record.value.get("spec") or {})
        return None

    def _incomplete(self, key: GroupName, pods: list[Object]) -> str:
        spec = self._spec(key)
        if spec is None:
            return f"pod group {key.name} does not exist"
        least = _min_count(spec)
        return (
            f"pod group {key.name}: {len(pods)} of {least} pods exist" if len(pods) < least else ""
        )

    def _result(self, key: GroupName, pods: list[Object]) -> GroupResult:
        spec = self._spec(key)
        least = 0 if spec is None else _min_count(spec)
        placed = sum(bool(pod["spec"].get("nodeName")) for pod in pods)
        runs = spec is not None and placed >= max(1, least)
        reasons = [text for pod in pods if (text := _message(pod))]
        own = [text for text in reasons if not _OTHERS_FAILED.match(text)]
        first = next(iter(own or reasons), "")
        return GroupResult(
            api=key.api,
            namespace=key.namespace,
            name=key.name,
            min_count=least,
            pods=len(pods),
            placed=placed,
            runs=runs,
            reason="" if runs else self._incomplete(key, pods) or first,
        )


def _min_count(spec: Object) -> int:
    """How many pods are scheduled together at least; 0 if they do not wait for each other."""
    gang = (spec.get("schedulingPolicy") or {}).get("gang") or {}
    return int(gang.get("minCount") or spec.get("minMember") or 0)


def _key(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _message(pod: Object) -> str:
    """Why the scheduler rejected a pod; empty if it did not."""
    if pod["spec"].get("nodeName"):
        return ""
    for condition in pod.get("status", {}).get("conditions", ()):
        if condition["type"] == "PodScheduled":
            return str(condition.get("message", ""))
    return ""
