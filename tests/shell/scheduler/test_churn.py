"""Nodes, volumes, namespaces and pods come and go, each with names and labels of its own: nothing of them stays
behind.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from app.framework.testing import make_node, make_object, make_pod
from app.model import objects, storage
from app.model.objects import Node
from app.model.pod import Pod
from tests.entries import entries, grown, lower_limits
from tests.shell.extender.fakes import extender
from tests.shell.scheduler.world import running

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
ROUNDS = 200
#: Attributes not followed: fakes, which remember every call, and the event recorder, which does not run here.
FAKES = ("_api", "_transport", "fake", "_events")


@pytest.fixture(autouse=True)
def _forgetful(monkeypatch):
    lower_limits(monkeypatch)


# ---------------------------------------------------------------- what comes and goes

_OTHERS = {"labelSelector": {"matchLabels": {"x": "y"}}}
#: A template that one pod keeps alive, while others with it come and go in namespaces of their own.
SHARED = {
    "containers": [{"name": "main", "image": "same"}],
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOST, **_OTHERS}]
        }
    },
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **_OTHERS}
    ],
}


LOCAL = {
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}
#: Of the pods of a round all but that without a node, that without a licence and that without a volume.
BOUND_PER_ROUND = 7


def a_node(number: int) -> Node:
    return make_node(
        f"n{number}",
        labels={HOST: f"n{number}", ZONE: f"z{number}", f"key-{number}": "v"},
        spec={"taints": [{"key": f"t{number}", "effect": "PreferNoSchedule"}]},
        status={
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "20"},
            "images": [{"names": [f"image-{number}"], "sizeBytes": 10**8}],
        },
    )


def specs(number: int) -> Iterator[Mapping[str, Any]]:
    same = {"labelSelector": {"matchLabels": {"app": f"app-{number}"}}}
    port = {"hostPort": 8000 + number, "containerPort": 80}
    base = {"containers": [{"name": "main", "image": f"image-{number}"}]}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    near = {"weight": 1, "podAffinityTerm": {"topologyKey": ZONE, **same}}
    yield base | {"nodeSelector": {HOST: f"n{number}"}}
    yield base | {"nodeSelector": {f"key-{number}": "v"}}
    yield base | {"nodeSelector": {f"no-key-{number}": "v"}}
    yield base | {"tolerations": [{"key": f"t{number}"}], "priority": number}
    yield {"containers": [{"name": "main", "image": "same", "ports": [port]}]}
    yield base | {
        "affinity": {
            "podAffinity": {preferred: [near]},
            "podAntiAffinity": {required: [{"topologyKey": HOST, **same}]},
        }
    }
    yield base | {
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": action, **same}
            for key, action in ((ZONE, "DoNotSchedule"), (HOST, "ScheduleAnyway"))
        ]
    }
    for claim in ("bound", "big"):
        yield base | {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]}
    yield SHARED


def some_pods(number: int) -> Iterator[Pod]:
    namespace = f"ns-{number}"
    for index, spec in enumerate(specs(number)):
        labels = {"app": f"app-{number}"}
        pod = make_pod(f"p{number}-{index}", namespace=namespace, labels=labels, spec=spec)
        raw = json.dumps({"metadata": {"name": pod.name, "namespace": namespace}}).encode()
        nominated = "" if pod.spec.node_selector else f"n{number}"
        yield msgspec.structs.replace(pod, raw=raw, nominated_node_name=nominated)


def a_volume(number: int, name: str, status: str, **spec: Any) -> storage.PersistentVolume:
    here = {"key": HOST, "operator": "In", "values": [f"n{number}"]}
    common = {
        "capacity": {"storage": "1Gi"},
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "csi": {"driver": "driver", "volumeHandle": name},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    manifest = {"metadata": {"name": name}, "spec": common | spec, "status": {"phase": status}}
    return make_object(storage.PersistentVolume, manifest)


def a_claim(number: int, name: str, size: str, **spec: Any) -> storage.PersistentVolumeClaim:
    done = {"pv.kubernetes.io/bind-completed": "yes"} if spec else {}
    common = {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    meta = {"name": name, "namespace": f"ns-{number}", "uid": f"{name}-{number}"}
    manifest = {"metadata": {**meta, "annotations": done}, "spec": common | spec}
    return make_object(storage.PersistentVolumeClaim, manifest)


def some_objects(number: int) -> Iterator[Any]:
    """A namespace, and what belongs to a node and to volumes."""
    reference = {"namespace": f"ns-{number}", "name": "bound", "uid": f"bound-{number}"}
    meta = {"name": f"n{number}"}
    driver = {"name": "driver", "nodeID": f"n{number}", "topologyKeys": [HOST]}
    source = {"persistentVolumeName": f"bound-{number}"}
    attached = {"attacher": "driver", "nodeName": f"n{number}", "source": source}
    named = {"metadata": {"name": f"ns-{number}", "labels": {"l": str(number)}}}
    yield make_object(objects.Namespace, named)
    yield a_volume(number, f"free-{number}", "Available")
    yield a_volume(number, f"bound-{number}", "Bound", claimRef=reference)
    yield a_claim(number, "big", "5Gi")
    yield a_claim(number, "bound", "1Gi", volumeName=f"bound-{number}")
    yield make_object(storage.CSINode, {"metadata": meta, "spec": {"drivers": [driver]}})
    yield make_object(storage.VolumeAttachment, {"metadata": meta, "spec": attached})


# ---------------------------------------------------------------- the rounds


def licences(sink):
    """An extender that rejects some pods for reasons of their own."""

    def answer(_verb, body):
        name, nodes = body["Pod"]["metadata"]["name"], body["NodeNames"]
        if name.endswith("-3"):
            return {"NodeNames": [], "FailedNodes": dict.fromkeys(nodes, f"none for {name}")}
        return {"NodeNames": nodes}

    others = {"prioritize_verb": "", "preempt_verb": "", "bind_verb": ""}
    return [extender(answer, sink=sink, **others)]


class Churn:
    """A world in which things come and go as its watches would report it."""

    def __init__(self, world):
        self._world = world

    def report(self, old, new):
        kind = type(old if new is None else new)
        self._world.scheduler._handler(kind)(old, new)

    async def round(self, number):
        """Returns how many pods were bound."""
        things = [*some_objects(number), a_node(number)]
        pods = list(some_pods(number))
        for thing in (*things, *pods):
            self.report(None, thing)
        await self._world.settle()
        bound = self._bindings()
        for pod in pods:
            if pod.name in bound:
                placed = pod.on(bound[pod.name])
                self.report(pod, placed)
                self.report(placed, None)
            else:
                self.report(pod, None)
        for thing in reversed(things):
            self.report(thing, None)
        return len(bound)

    def _bindings(self):
        sent = self._world.transport.sent
        bound = {
            s.path.split("/")[-2]: s.body["target"]["name"]
            for s in sent
            if s.path.endswith("/binding")
        }
        sent.clear()
        return bound


@pytest.mark.looptime
async def test_nothing_is_remembered_of_what_has_gone():
    async with running("base-0", "base-1", extenders=licences) as world:
        churn = Churn(world)
        world.telemetry.histories._max_pods = 8
        remembered = (
            world.state,
            world.scheduler.frameworks,
            world.scheduler.retries,
            world.telemetry,
        )
        churn.report(None, make_pod("kept", spec=SHARED).on("base-0"))
        churn.report(None, make_object(storage.StorageClass, LOCAL))
        for number in range(ROUNDS // 2):
            assert await churn.round(number) == BOUND_PER_ROUND
        before = entries(remembered, leaving_out=FAKES)
        for number in range(ROUNDS // 2, ROUNDS):
            await churn.round(number)
        after = entries(remembered, leaving_out=FAKES)
        assert not grown(before, after, by=ROUNDS // 4)
        world.scheduler.retries.close()
