"""Pods that get the same node, and other volumes or other devices."""

import pytest

from app.framework.testing import make_object
from app.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from app.model.pod import Pod
from app.model.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from tests.core.shadow.playing import Player, world

DRIVER = "gpu.example.com"


@pytest.fixture
def player() -> Player:
    return Player(world(), world())


def made(player: Player, kind: type, manifest: dict):
    thing = make_object(kind, manifest)
    player.tell(kind, None, thing)
    return thing


def volume(name: str, size: str, claim: dict | None = None) -> dict:
    spec = {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "there",
    }
    if claim is not None:
        spec["claimRef"] = claim
    version = "2" if claim else "1"
    return {
        "metadata": {"name": name, "uid": name, "resourceVersion": version},
        "spec": spec,
        "status": {"phase": "Available"},
    }


@pytest.fixture
def pod(player) -> Pod:
    """A pod on the only node, with a claim for which there are volumes of three sizes."""
    player.node("a")
    made(
        player,
        StorageClass,
        {
            "metadata": {"name": "there"},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    player.volumes = {
        name: made(player, PersistentVolume, volume(name, size))
        for name, size in (("small", "1Gi"), ("also-small", "1Gi"), ("large", "5Gi"))
    }
    made(
        player,
        PersistentVolumeClaim,
        {
            "metadata": {"name": "c", "namespace": "default", "uid": "u", "resourceVersion": "1"},
            "spec": {
                "storageClassName": "there",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"phase": "Pending"},
        },
    )
    player.catch_up()
    player.now += 1
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    return player.pod("p", spec={"volumes": volumes})


def bind(player: Player, name: str) -> None:
    claim = {"namespace": "default", "name": "c", "uid": "u"}
    old = player.volumes[name]
    size = old.spec.capacity["storage"]
    player.show(PersistentVolume, old, make_object(PersistentVolume, volume(name, size, claim)))


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(
    ("name", "kind"), [("small", "same"), ("also-small", "same"), ("large", "volumes")]
)
def test_the_volume_that_is_bound_is_compared(player, pod, name, kind, first):
    """The two watches may show the nomination and the volume in any order."""
    nominated = player.versioned(pod, nominated_node_name="a")
    if first:
        bind(player, name)
    player.show(Pod, pod, nominated)
    entry = player.timeline.ahead[-1]
    assert player.timeline.awaits_preparation(entry) != first
    if not first:
        bind(player, name)
    assert not player.timeline.awaits_preparation(entry)
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.node) == (kind, "a")
    if kind == "volumes":
        assert verdict.plugins == ("VolumeBinding",)
        assert verdict.change.startswith("claim default/c would have to get large instead of ")
    bound = player.versioned(nominated, node_name="a")
    player.show(Pod, nominated, bound)
    assert player.catch_up() == []


def devices(player: Player, *names: str) -> None:
    made(
        player,
        DeviceClass,
        {
            "metadata": {"name": DRIVER},
            "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
        },
    )
    made(
        player,
        ResourceSlice,
        {
            "metadata": {"name": "s"},
            "spec": {
                "driver": DRIVER,
                "nodeName": "a",
                "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": name} for name in names],
            },
        },
    )


def claim(status: dict | None = None) -> dict:
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}
    return {
        "metadata": {
            "name": "c",
            "namespace": "default",
            "uid": "u",
            "resourceVersion": "2" if status else "1",
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": status or {},
    }


@pytest.mark.parametrize(("name", "kind"), [("d0", "same"), ("d1", "devices")])
def test_the_devices_that_are_allocated_are_compared(player, name, kind):
    player.node("a")
    devices(player, "d0", "d1")
    known = made(player, ResourceClaim, claim())
    player.catch_up()
    player.now += 1
    pod = player.pod("p", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})
    player.show(Pod, pod, player.versioned(pod, nominated_node_name="a"))
    entry = player.timeline.ahead[-1]
    assert player.timeline.awaits_preparation(entry)
    result = {"request": "r", "driver": DRIVER, "pool": "a", "device": name}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod.uid}],
    }
    player.show(ResourceClaim, known, make_object(ResourceClaim, claim(status)))
    assert not player.timeline.awaits_preparation(entry)
    (verdict,) = player.catch_up()
    assert (verdict.kind, verdict.node) == (kind, "a")
    if kind == "devices":
        assert verdict.plugins == ("DynamicResources",)
        assert verdict.change == (
            f"claim default/c would have to get {DRIVER}/a/d1 instead of {DRIVER}/a/d0"
        )
