"""A recorded cluster as this scheduler's core would see it: state and framework, no server, no loop."""

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from app.cycle.attempt import Attempt
from app.model import objects, storage
from app.model.features import RECORDED, Features, Rule
from app.model.pod import Pod
from app.plugins import registry
from app.scheduler.profiles import build_state
from app.settings.load import load
from app.state.nominator import Nominator
from app.state.queue.scheduling_queue import QueuePlugins, SchedulingQueue
from app.state.scheduler_state import Change
from app.wire.kube import NodeDecoder, PodDecoder, decoder_for

CASES = Path(__file__).parent / "vectors" / "cases"
KINDS = {
    kind.__name__: kind
    for kind in (
        objects.Namespace,
        objects.Service,
        objects.ReplicaSet,
        storage.StorageClass,
        storage.CSIDriver,
        storage.CSINode,
        storage.CSIStorageCapacity,
        storage.PersistentVolume,
        storage.PersistentVolumeClaim,
        objects.PodDisruptionBudget,
    )
}
NOW = 1_800_000_000.0


def read(path: Path) -> dict[str, Any]:
    """One recorded case."""
    case: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return case


def _make_queue(_: QueuePlugins, nominator: Nominator) -> SchedulingQueue:
    return SchedulingQueue(
        QueuePlugins(lambda queued: (-queued.pod.priority, queued.timestamp)), nominator
    )


class Recorded:
    """The cluster of a case, and the frameworks of its profiles."""

    def __init__(self, case: dict[str, Any], features: Features = RECORDED) -> None:
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": case["profiles"],
        }
        classes = registry.registry()
        profiles = load(json.dumps(configuration), features=features).to_plain(
            registry.capabilities(classes), features
        )
        self.rng = np.random.default_rng(1)

        self.state, self.frameworks = build_state(
            profiles, classes, _make_queue, rng=self.rng, features=features
        )
        self.pods = PodDecoder(sums_of_resize=Rule.SumsOfResize in features.rules)
        for kind, items in case["objects"].items():
            for item in items:
                self._store(kind, item)

    def _store(self, kind: str, item: dict[str, Any]) -> None:
        if kind == "Pod":
            if item["status"].get("phase") not in {"Succeeded", "Failed"}:
                self.state.apply(Change(Pod, None, self.pod(item)), NOW)
        elif kind == "Node":
            self.state.apply(
                Change(objects.Node, None, _decode(NodeDecoder(keep_raw=False), item)), NOW
            )
        elif kind in KINDS:
            self.state.apply(
                Change(KINDS[kind], None, _decode(decoder_for(KINDS[kind]), item)), NOW
            )

    def pod(self, item: dict[str, Any]) -> Pod:
        """A pod object."""
        pod: Pod = _decode(self.pods, item)
        return pod

    def attempt(self, pod: Pod) -> Attempt:
        """A scheduling attempt for a pod."""
        return Attempt(
            self.frameworks[pod.spec.scheduler_name],
            self.state.table,
            pod,
            nominated=self.state.nominated_for,
            rng=self.rng,
        )


def _decode(decoder: Any, item: dict[str, Any]) -> Any:
    line = b'{"type":"ADDED","object":' + msgspec.json.encode(item) + b"}"
    return decoder.decode_line(line)[1]
