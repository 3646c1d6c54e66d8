"""PodGroups of scheduling.k8s.io/v1alpha2, which Kubernetes 1.36 has and 1.37 has not.

Everything that holds for this version only is here. When 1.36 is no longer an emulated version this module goes, with
what imports it; app.model.pod_groups and its users know the versions of 1.37.
"""

from typing import Final

VERSION: Final = "scheduling.k8s.io/v1alpha2"
#: Where the API server serves them.
PATH: Final = f"/apis/{VERSION}/podgroups"
#: The condition that says whether a group is scheduled.
CONDITION: Final = "PodGroupScheduled"
#: The gate that they need besides GenericWorkload.
GANGS: Final = "GangScheduling"
#: The gate with which preemption sees groups as a whole.
WHOLE_PREEMPTION: Final = "WorkloadAwarePreemption"


def is_served_at(path: str) -> bool:
    """Whether a path is that of this version."""
    return path == PATH


def is_disrupted_whole(mode: str) -> bool:
    """Whether ``spec.disruptionMode``, here a text, says that all pods of the group are evicted, or none."""
    return mode == "PodGroup"
