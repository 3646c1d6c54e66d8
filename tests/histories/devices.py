"""Devices: what there is at the beginning, claims for pods, and the controller that takes devices back."""

import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.histories.apiserver import (
    DEVICE_CLAIMS,
    DEVICE_CLASSES,
    PODS,
    SLICES,
    ApiServer,
    Manifest,
    Write,
    is_live,
    key_of,
)
from tests.histories.simulation import Simulation

DRIVER = "dra.example.com"
#: A pool whose devices all nodes reach; the others have the name of their node.
SHARED_POOL = "network"
#: A claim that several pods may use.
_SHARED = "board-shared"

Device = tuple[str, str]


class Devices:
    """The devices of one cluster."""

    def __init__(
        self,
        simulation: Simulation,
        server: ApiServer,
        rng: random.Random,
        tell: Callable[[str, str], None],
    ) -> None:
        self._simulation = simulation
        self._server = server
        self._rng = rng
        self._tell = tell

    def begin(self) -> None:
        """The class, the devices that all nodes reach, and the claim that is shared."""
        self._server.create(DEVICE_CLASSES, {"metadata": {"name": "board"}, "spec": {}})
        self._add_slice(SHARED_POOL, {"allNodes": True}, self._rng.choice((0, 1, 1)))
        self._server.create(DEVICE_CLAIMS, _claim(_SHARED))

    def add_node(self, name: str) -> None:
        """What a node brings with it."""
        if self._server.get(SLICES, name) is None:
            self._add_slice(name, {"nodeName": name}, self._rng.choice((0, 1, 1, 2)))

    def _add_slice(self, pool: str, reach: Manifest, number: int) -> None:
        if number:
            spec = {
                "driver": DRIVER,
                "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": f"d{i}"} for i in range(number)],
                **reach,
            }
            self._server.create(SLICES, {"metadata": {"name": pool}, "spec": spec})

    def claim_for(self, pod: Manifest) -> None:
        """Gives a pod the claim that is shared, or one of its own."""
        name = _SHARED
        if self._rng.random() < 0.7:
            name = f"board-{pod['metadata']['name']}"
            if self._server.get(DEVICE_CLAIMS, f"default/{name}") is None:
                self._server.create(DEVICE_CLAIMS, _claim(name))
        pod["spec"]["resourceClaims"] = [{"name": "board", "resourceClaimName": name}]

    def wrote(self, write: Write) -> None:
        """The controller looks at pods that have ended."""
        if write.resource != PODS or write.old is None:
            return
        if write.new is None or (is_live(write.old) and not is_live(write.new)):
            pause = self._rng.uniform(0.1, 2.0)
            self._simulation.after(pause, self._release, write.old["metadata"]["uid"])

    def _release(self, uid: str) -> None:
        """Takes a pod off the claims that were reserved for it; those of which it was the last lose their devices."""
        for claim in self._server.all(DEVICE_CLAIMS):
            consumers = claim["status"].get("reservedFor", ())
            left = [each for each in consumers if each["uid"] != uid]
            if len(left) == len(consumers):
                continue
            status = {"reservedFor": left} if left else {"reservedFor": None, "allocation": None}
            self._tell("claim controller", f"releases {key_of(claim)} of {uid}")
            self._server.merge(DEVICE_CLAIMS, key_of(claim), {"status": status})


# ---------------------------------------------------------------- rules


def allocated(claim: Manifest | None) -> set[Device]:
    """The devices of a claim, each with its pool."""
    allocation: Any = (claim or {}).get("status", {}).get("allocation") or {}
    results = allocation.get("devices", {}).get("results", ())
    return {(each["pool"], each["device"]) for each in results}


def consumers(claim: Manifest | None) -> list[str]:
    """The uids of the pods that a claim is reserved for."""
    return [each["uid"] for each in (claim or {}).get("status", {}).get("reservedFor") or ()]


def device_claims_of(pod: Manifest) -> list[str]:
    """The keys of a pod's claims."""
    return [
        f"{pod['metadata']['namespace']}/{each['resourceClaimName']}"
        for each in pod["spec"].get("resourceClaims", ())
    ]


def not_reserved(server: ApiServer, pod: Manifest, node: str) -> list[str]:
    """The keys of a pod's claims that are not reserved for it, or whose devices a node does not reach."""
    return [
        key
        for key in device_claims_of(pod)
        if pod["metadata"]["uid"] not in consumers(claim := server.get(DEVICE_CLAIMS, key))
        or not _within_reach(claim, node)
    ]


def obstacles(server: ApiServer, pod: Manifest, node: str) -> Iterator[str]:
    """Why a pod cannot go to a node for its claims."""
    for key in device_claims_of(pod):
        claim = server.get(DEVICE_CLAIMS, key)
        if claim is None:
            yield "no claim"
        elif allocated(claim):
            if not _within_reach(claim, node):
                yield "devices are elsewhere"
        elif not _free(server, node):
            yield "no device"


def _within_reach(claim: Manifest | None, node: str) -> bool:
    pools = {pool for pool, _ in allocated(claim)}
    return bool(pools) and pools <= {node, SHARED_POOL}


def _free(server: ApiServer, node: str) -> set[Device]:
    """The devices that a node reaches and that no claim has."""
    there = {
        (each["spec"]["pool"]["name"], device["name"])
        for each in server.all(SLICES)
        if each["spec"]["pool"]["name"] in {node, SHARED_POOL}
        for device in each["spec"]["devices"]
    }
    return there.difference(*map(allocated, server.all(DEVICE_CLAIMS)))


def _claim(name: str) -> Manifest:
    exactly = {"deviceClassName": "board", "allocationMode": "ExactCount", "count": 1}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
        "status": {},
    }
