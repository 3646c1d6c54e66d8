"""NodeDeclaredFeatures: pods that need a kubelet feature run on nodes that declare it.

See docs/spec/plugins/node-declared-features.md, KEP-5328.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import numpy as np

from app.framework.handle import Handle
from app.framework.interface import CycleState, Need, NodeLocal, Verdicts, changed, on_event, reject
from app.framework.optional import IgnoresOtherPods
from app.model.cluster_event import Action, Resource
from app.model.features import Rule
from app.model.objects import PodSpec
from app.model.pod import Pod
from app.model.status import SKIP, SUCCESS, Code, Status
from app.state.columns.arrays import Rows
from app.state.columns.labels import EncodedColumn, Mask
from app.state.queue.hints import EventRegistration
from app.state.table import NodeTable
from app.state.view import View

ERR_REASON: Final = "node(s) didn't match Pod's required features"

RESTART_ALL_CONTAINERS: Final = "RestartAllContainersOnContainerExits"
USER_NAMESPACES_HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"
VOLUME_BIND_MOUNT_OPTIONS: Final = "VolumeBindMountOptions"

_NO_FEATURES: Final[frozenset[str]] = frozenset()
_STATE: Final = "NodeDeclaredFeatures/filter"


def required_features(spec: PodSpec, *, bind_mounts: bool = True) -> frozenset[str]:
    """The features that a pod with this spec needs, as far as kube-scheduler infers them.

    ``bind_mounts``: options of bind mounts need a feature, which is the rule of Kubernetes 1.37.
    """
    features = set()
    containers = (*(spec.init_containers or ()), *spec.containers)
    rules = (rule for container in containers for rule in container.restart_policy_rules or ())
    if any(rule.action == "RestartAllContainers" for rule in rules):
        features.add(RESTART_ALL_CONTAINERS)
    if spec.host_network and spec.host_users is False:
        features.add(USER_NAMESPACES_HOST_NETWORK)
    mounts = (mount for each in containers for mount in each.volume_mounts or ())
    if bind_mounts and any(mount.bind_mount_options for mount in mounts):
        features.add(VOLUME_BIND_MOUNT_OPTIONS)
    return frozenset(features)


class _FeatureColumn:
    """The declared features of every row, as int32 codes of the distinct sets; updated at each use.

    Few pods need it, so it does not follow the table: rows changed since the last use are read at the next one.
    """

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self._generation = 0
        self._sets: Final = EncodedColumn(table.capacity, _NO_FEATURES)

    def have(self, required: frozenset[str], rows: Rows) -> Mask:
        """bool[len(rows)]: whether the rows declare all of ``required``."""
        self._update()
        table = np.array([required <= declared for declared in self._sets.values])
        return table[self._sets.codes[rows]]

    def _update(self) -> None:
        table = self._table
        if self._generation == table.last_generation:
            return
        self._sets.grow(table.capacity)
        for row in table.rows_since(self._generation).tolist():
            node = table.nodes[row]
            declared = None if node is None else node.status.declared_features
            self._sets.set(row, frozenset(declared) if declared else _NO_FEATURES)
        self._generation = table.last_generation


class NodeDeclaredFeatures(NodeLocal, IgnoresOtherPods):
    """Rejects nodes that lack a feature the pod needs."""

    NAME: ClassVar[str] = "NodeDeclaredFeatures"
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "filter": Need(
            "preFilter", 'error reading "PreFilterNodeDeclaredFeatures" from cycle-state: not found'
        ),
    }

    def __init__(self, _args: object, handle: Handle) -> None:
        """Takes no arguments."""
        self._column: Final = _FeatureColumn(handle.table)
        self._bind_mounts: Final = Rule.BindMountOptions in handle.features.rules

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Skips pods that need no feature."""
        required = required_features(pod.spec, bind_mounts=self._bind_mounts)
        if not required:
            return SKIP
        state.write(_STATE, required)
        return SUCCESS

    def filter(self, state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows that do not declare every feature needed."""
        declared = self._column.have(state.read(_STATE), view.rows)
        return reject(~declared, Code.UnschedulableAndUnresolvable, ERR_REASON)

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Added nodes, changed declarations, and updates of the pod itself."""
        node = Action.Add | Action.UpdateNodeDeclaredFeature
        return (
            on_event(
                Resource.Node,
                node,
                changed(lambda node: node.status.declared_features),
                template_only=True,
            ),
            on_event(Resource.Pod, Action.Update, _own_needs_changed),
        )


def _own_needs_changed(pod: Pod, old: Pod, new: Pod) -> bool:
    return new.uid == pod.uid and required_features(old.spec) != required_features(new.spec)
