"""The state with every default plugin, scheduling without a loop: for tests of what all of it costs together."""

import functools
import json
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, NoNodesError, Unfit
from app.framework.args import Profile
from app.framework.testing import make_node, make_object
from app.model.objects import Named
from app.plugins import registry
from app.scheduler.profiles import build_state
from app.settings.load import load
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import Change
from app.wire.kube import PodDecoder

PROFILE = "default-scheduler"
CONFIG = json.dumps(
    {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
)
Manifest = Mapping[str, Any]


@functools.cache
def _profiles() -> tuple[Profile, ...]:
    return tuple(load(CONFIG).to_plain())


class FullState:
    """A SchedulerState, and the framework of the default profile, as the process puts them together."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)
        self.now = 1_800_000_000.0
        self.state, frameworks = build_state(
            _profiles(),
            registry.IN_TREE,
            rng=self.rng,
        )
        self.framework = frameworks[PROFILE]
        self._pods = PodDecoder()
        #: Every object there is, by its kind and its key, in the order in which they came.
        self.objects: dict[tuple[type, str], Any] = {}

    # ------------------------------------------------------------ what happens

    def node(self, name: str, **parts: Any) -> None:
        """A node comes, or there is a new version of it."""
        self.store(make_node(name, **parts))

    def pod(self, name: str, spec: Manifest | None = None, **metadata: Any) -> None:
        """A pod that waits comes."""
        meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"} | metadata
        containers = [{"name": "main", "image": "registry.example.com/app:1"}]
        spec = {"schedulerName": PROFILE, "containers": containers} | dict(spec or {})
        status = {}
        if nominated := meta.pop("nominated", ""):
            status = {"nominatedNodeName": nominated}
        document = {"metadata": meta, "spec": spec, "status": status}
        self.store(self._pods.decode(msgspec.json.encode(document)))

    def add(self, kind: type[Named], name: str, **manifest: Any) -> None:
        """An object of another kind comes."""
        meta = {"name": name} | manifest.pop("metadata", {})
        self.store(make_object(kind, {"metadata": meta} | manifest))

    def store(self, new: Any) -> None:
        """An object comes, or there is a new version of it."""
        key = (type(new), new.key)
        old = self.objects.get(key)
        self.objects[key] = new
        self.state.apply(Change(type(new), old, new), self.now)

    def remove_all(self) -> None:
        """All objects go, the latest first."""
        while self.objects:
            (kind, _), old = self.objects.popitem()
            self.state.apply(Change(kind, old, None), self.now)

    def schedule(self) -> int:
        """Tries every pod that is active or comes to be; returns how many went to a node, as the watch confirms."""
        bound = 0
        while (queued := self.state.pop(self.now)) is not None:
            bound += self._try(queued)
        self.state.flush(self.now)
        return bound

    def _try(self, queued: QueuedPod) -> bool:
        pod, framework = queued.pod, self.framework
        attempt = Attempt(
            framework,
            self.state.table,
            pod,
            nominated=self.state.nominated_for,
            rng=self.rng,
            nominated_node=self.state.nominator.node_of(pod.uid),
        )
        try:
            choice = attempt.choose_at_once() or attempt.choose(attempt.find())
        except Unfit as unfit:
            diagnosis = unfit.diagnosis
            diagnosis.message()
            queued.reject(diagnosis.unschedulable_plugins, diagnosis.pending_plugins)
            self.state.fail(queued, self.now, nominated_node=None)
            return False
        except NoNodesError:
            queued.reject()
            self.state.fail(queued, self.now, nominated_node=None)
            return False
        assumed = self.state.assume(pod, choice.node_name)
        framework.commit.reserve(attempt.state, assumed, choice.node_name)
        framework.commit.unreserve(
            attempt.state, assumed, choice.node_name
        )  # nothing is written here
        self.state.done(pod.uid)
        self.store(msgspec.structs.replace(pod, node_name=choice.node_name))
        return True
