"""What is off by default: feature gates and versions of the API, by the names that kube-apiserver has for them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.model import pod_groups_v1alpha2

GATES: Final[Mapping[str, tuple[str, ...]]] = {
    "GenericWorkload": (),
    pod_groups_v1alpha2.GANGS: ("GenericWorkload",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    pod_groups_v1alpha2.WHOLE_PREEMPTION: (pod_groups_v1alpha2.GANGS,),
    "DRAWorkloadResourceClaims": ("GenericWorkload",),
    "WorkloadWithJob": ("GenericWorkload",),
    "PodGroupPreemptionPolicy": ("GenericWorkload",),
}
"""Feature gate -> the gates that it needs."""

VERSIONS: Final = (
    pod_groups_v1alpha2.VERSION,
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1alpha3",
)
"""Versions that can be served. They have the same kinds, so one of them at most."""
_GONE: Final = frozenset(
    {
        pod_groups_v1alpha2.VERSION,
        pod_groups_v1alpha2.GANGS,
        pod_groups_v1alpha2.WHOLE_PREEMPTION,
    }
)
"""What Kubernetes 1.37 no longer has."""
_OLDEST: Final = "1.36"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedFeatures:
    """What is switched on."""

    gates: frozenset[str] = frozenset()
    versions: frozenset[str] = frozenset()
    kubernetes: str = _OLDEST
    """The version of Kubernetes that the server says it is, and whose kinds it serves."""

    @property
    def is_newer(self) -> bool:
        """Whether it is of Kubernetes 1.37 or later."""
        return self.kubernetes != _OLDEST

    def __contains__(self, gate: str) -> bool:
        return gate in self.gates


NO_FEATURES: Final = ServedFeatures()


def parse_features(
    gates: Iterable[str], runtime_config: Iterable[str], kubernetes: str = _OLDEST
) -> ServedFeatures:
    """Reads the flags ``--feature-gates`` and ``--runtime-config``, each of which may be repeated.

    Raises ValueError for a name that is not known, or that this version of Kubernetes does not have, and for a
    combination that cannot be. The versions of groups that came with 1.37 are there in 1.36 as well.
    """
    on = _switched_on(gates, "feature gate", GATES)
    newer = kubernetes != _OLDEST
    if newer and (gone := sorted(_GONE & on)):
        raise ValueError(f"Kubernetes {kubernetes} has no feature gate {', '.join(gone)}")
    for gate in sorted(on):
        missing = [needed for needed in GATES[gate] if needed not in on]
        if missing:
            raise ValueError(f"feature gate {gate} needs {', '.join(missing)}")
    versions = _switched_on(runtime_config, "version of the API", VERSIONS)
    if len(versions) > 1:
        raise ValueError(f"only one of {' and '.join(sorted(versions))} can be served")
    if newer and (gone := sorted(_GONE & versions)):
        raise ValueError(f"Kubernetes {kubernetes} does not have {', '.join(gone)}")
    if versions and "GenericWorkload" not in on:
        raise ValueError(f"{' '.join(versions)} needs the feature gate GenericWorkload")
    return ServedFeatures(gates=on, versions=versions, kubernetes=kubernetes)


def _switched_on(flags: Iterable[str], what: str, known: Iterable[str]) -> frozenset[str]:
    """The names with the value true in texts such as ``A=true,B=false``. A later value replaces an earlier one."""
    values: dict[str, bool] = {}
    for part in ",".join(flags).split(","):
        name, equals, text = part.strip().partition("=")
        if not name:
            continue
        if name not in known:
            raise ValueError(f"unknown {what}: {name} (known: {', '.join(known)})")
        if equals and text not in ("true", "false"):
            raise ValueError(f"{name} must be true or false, not {text!r}")
        values[name] = text != "false"
    return frozenset(name for name, value in values.items() if value)
