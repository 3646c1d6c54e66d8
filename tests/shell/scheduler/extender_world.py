"""A scheduler without an API server whose extenders are scripts: queue, loop, search and bindings on the virtual
clock."""

import json

import msgspec
import numpy as np

from app.extender.chain import ExtenderChain
from app.framework.diagnosis import EXTENDER
from app.framework.interface import POINT_METHODS
from app.framework.plugin_class import points_of
from app.framework.testing import make_node
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import Node
from app.model.pod import Pod
from app.model.status import SUCCESS
from app.observe.events import ignore
from app.observe.extender_reports import ExtenderReports
from app.plugins import registry
from app.scheduler.binding import Binder
from app.scheduler.extender_cycle import ChainBinder, ExtenderCycle
from app.scheduler.extender_retries import ExtenderRetries
from app.scheduler.failures import FailureHandler
from app.scheduler.loop import PodCycle, QueueFlusher, SchedulingLoop
from app.scheduler.parts import Parts
from app.scheduler.permits import WaitingPodsMap
from app.scheduler.profiles import build_state
from app.scheduler.releases import Releases
from app.scheduler.serial_extenders import SerialGate, extenders_of
from app.scheduler.shadow_extenders import ShadowExtenders
from app.settings.load import load
from app.state.queue.hints import EventRegistration
from app.state.queue.scheduling_queue import SchedulingQueue
from app.wire.kube import PodDecoder
from tests.shell.extender.fakes import extender
from tests.shell.scheduler.world import LoopWorld

PROFILE = "default-scheduler"
PODS = PodDecoder(keep_raw=True)
PLUGINS = ("PrioritySort", "NodeName", "NodeResourcesFit", "DefaultBinder")
_CONFIG = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class World(LoopWorld):
    """``bound`` maps pods to nodes; ``told`` has (pod, reason, note) of every event."""

    def __init__(
        self, *extenders, parallelism=16, percentage=100, seed=0, max_writing=64, shadows=()
    ):
        super().__init__()
        self.bound, self.told, self.attempts = {}, [], []
        self.compared = []
        rng = np.random.default_rng(seed)
        self.chain = ExtenderChain(extenders)
        self.state, frameworks = self._make_state(rng)
        self.flusher = QueueFlusher(self.state, self.clock, self._wake)
        parts = Parts(self.state, self.clock, rng, self._spawn, ignore)
        reports = ExtenderReports(wall=self.clock.wall, monotonic=self.clock.monotonic)
        reports.send_to(self)
        self.retries = ExtenderRetries(
            parts,
            [e.name for e in self.chain.extenders],
            reports,
        )
        self.releases = Releases(self.chain.extenders, self._spawn, self.retries)
        failures = FailureHandler(parts, self, self, self.releases.given_up)
        self.binder = Binder(
            parts,
            effects=self,
            extenders=ChainBinder(self.chain, self, self.retries),
            waiting=WaitingPodsMap(),
            reports=self,
            undo=failures.undo,
            max_writing=max_writing,
        )
        search = ExtenderCycle(
            self.chain,
            self.state.table,
            percentages={PROFILE: percentage},
            rng=rng,
            retries=self.retries,
            serial=SerialGate(self.chain.extenders, self.flusher.notify),
            before_asking=self.releases.before_asking,
        )
        self.shadows = ShadowExtenders(
            shadows,
            self.state.table,
            percentages={PROFILE: percentage},
            rng=np.random.default_rng(0),
            spawn=self._spawn,
            sink=self.compared.append,
            busy=lambda: self.state.ready,
        )
        self.loop = SchedulingLoop(
            parts,
            PodCycle(
                parts,
                frameworks,
                binder=self.binder,
                failures=failures,
                extenders=search,
                shadows=self.shadows if shadows else None,
            ),
            extenders=search,
            parallelism=parallelism,
            limits=(self.binder.writes,),
        )

    def _make_state(self, rng):
        classes = {name: registry.IN_TREE[name] for name in PLUGINS}
        points = {
            point: tuple(name for name, cls in classes.items() if point in points_of(cls))
            for point in POINT_METHODS
        }
        [defaults] = load(_CONFIG).to_plain(registry.capabilities(dict(registry.IN_TREE)))
        profile = msgspec.structs.replace(defaults, points=points)

        hints = [
            EventRegistration(ClusterEvent(Resource.Node, Action.Add), plugin=EXTENDER),
            EventRegistration(ClusterEvent(Resource.Pod, Action.Delete), plugin=EXTENDER),
            EventRegistration(ClusterEvent(Resource.Pod, Action.UpdatePodLabel), plugin=EXTENDER),
            EventRegistration(ClusterEvent(Resource.Pod, Action.Delete), plugin=PLUGINS[2]),
        ]

        def make_queue(plugins, nominator):
            plugins = msgspec.structs.replace(plugins, hints={PROFILE: hints})
            lane = extenders_of(self.chain.extenders, lambda _pod: None)
            return SchedulingQueue(plugins, nominator, lane=lane)

        return build_state([profile], classes, make_queue, rng=rng, notify=self._notify)

    # -------------------------------------------------- driving it

    def close(self):
        self.retries.close()

    def nodes(self, *names, cpu="4", **others):
        for name in names:
            status = {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110", **others}}
            self.apply(Node, None, make_node(name, status=status))

    def pod(self, name, labels=None, **requests):
        pod = _pod(name, "1", requests, labels)
        self.apply(Pod, None, pod)
        return pod

    def changed(self, old, labels=None, **requests):
        """What the watch says of a pod that has other labels and requests now."""
        self.apply(Pod, old, _pod(old.name, "2", requests, labels))

    def confirm(self, pod):
        """What the watch says of a pod that was bound; the pod as it is now."""
        manifest = json.loads(pod.raw)
        manifest["spec"]["nodeName"] = self.bound[pod.name]
        bound = PODS.decode(json.dumps(manifest).encode())
        self.apply(Pod, pod, bound)
        return bound

    def terminate(self, pod):
        """What the watch says of a pod that is being deleted."""
        manifest = json.loads(pod.raw)
        manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.apply(Pod, pod, PODS.decode(json.dumps(manifest).encode()))

    def gone(self, pod):
        self.apply(Pod, pod, None)
        self.retries.gone(pod.uid)

    def place(self, pod):
        return self.state.queue.where(pod.uid).value

    # -------------------------------------------------- what would be written

    async def bind(self, pod, node_name):
        assert pod.name not in self.bound, f"{pod.name} is bound twice"
        self.bound[pod.name] = node_name
        return SUCCESS

    async def bound_to(self, pod, node, *, settle):
        return self.bound.get(pod.name)

    def scheduled(self, pod, now):
        self.told.append((pod.name, "Scheduled", pod.node_name))

    def nominated(self, pod, node_name, now):
        self.told.append((pod.name, "Nominated", node_name))

    async def withdraw(self, pod):
        """Nothing is ever left to withdraw."""

    def failed(self, pod, *, reason, message, nominated_node, now):
        self.told.append((pod.name, reason, message))

    def pod_event(self, pod, *, kind, reason, action, note, now, reporter="", related=None):
        assert (kind, action in {"Scheduling", "Binding"}) == ("Warning", True)
        self.told.append((pod.name, reason, note))


def _pod(name, version, requests, labels=None):
    container = {"name": "main", "resources": {"requests": requests}}
    manifest = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": f"uid-{name}",
            "resourceVersion": version,
            "labels": labels or {},
        },
        "spec": {"schedulerName": PROFILE, "containers": [container]},
    }
    return PODS.decode(json.dumps(manifest).encode())


def scripted(reply, **fields):
    """An extender that answers ``reply(verb, request)``; filters and scores only, unless told otherwise."""
    return extender(reply, **{"preempt_verb": "", "bind_verb": "", "prioritize_verb": "", **fields})
