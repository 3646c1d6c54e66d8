"""The cluster under the benchmark: guarded against wiping what is somebody's, filled, and watched."""

import asyncio
import itertools
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final, TypeVar

import numpy as np

from app.kube.client import ClientLimits, KubeClient
from app.kube.errors import NotFound
from app.kube.kubeconfig import load_connection
from app.kube.watch import watch_once
from app.runtime.clock import SystemClock
from tests.bench.devices import CLASS
from tests.bench.workload import GROUP_VERSION, MADE, PRIORITIES, Object, churned

T = TypeVar("T")

LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
NODES: Final = "/api/v1/nodes"
PODS: Final = "/api/v1/namespaces/default/pods"
ALL_PODS: Final = "/api/v1/pods"
_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{}/events"
_RESOURCE: Final = "/apis/resource.k8s.io/v1"
_DEVICE_CLASSES: Final = f"{_RESOURCE}/deviceclasses"
_SLICES: Final = f"{_RESOURCE}/resourceslices"
_CLAIMS: Final = f"{_RESOURCE}/namespaces/default/resourceclaims"
_GROUPS: Final = f"/apis/{GROUP_VERSION}/namespaces/default/podgroups"
_VOLUMES: Final = "/api/v1/persistentvolumes"
_VOLUME_CLAIMS: Final = "/api/v1/namespaces/default/persistentvolumeclaims"
_SERVICES: Final = "/api/v1/namespaces/default/services"
_COLLECTION: Final = {
    "Node": NODES,
    "Pod": PODS,
    "PriorityClass": _CLASSES,
    "DeviceClass": _DEVICE_CLASSES,
    "ResourceSlice": _SLICES,
    "ResourceClaim": _CLAIMS,
    "PodGroup": _GROUPS,
    "PersistentVolume": _VOLUMES,
    "PersistentVolumeClaim": _VOLUME_CLAIMS,
    "Service": _SERVICES,
}
_LET_GO: Final = json.dumps({"metadata": {"finalizers": None}}).encode()
_MERGE: Final = "application/merge-patch+json"
_AT_ONCE: Final = json.dumps({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).encode()
_WIDTH: Final = 32
_SHOWN: Final = 3
_PAUSE_SECONDS: Final = 0.05
_AT_A_TIME: Final = "2000"

# A measured pod's name and node in a watch line; the node is not yet there in most of them.
_NAME: Final = re.compile(rb'"name":"(pod-\d+)"')
_NODE: Final = re.compile(rb'"nodeName":"([^"]+)"')
_VERSION: Final = re.compile(rb'"resourceVersion":"(\d+)"')
_ERROR: Final = b'{"type":"ERROR"'


class NotOurs(Exception):  # noqa: N818 - what the user reads
    """The cluster holds something that the benchmark did not make."""


class Cluster:
    """One API server. Made by ``connected``; its methods raise KubeApiError."""

    def __init__(self, client: KubeClient) -> None:
        self._client: Final = client

    async def get(self, path: str, **params: str) -> Object:
        """An object or a list."""
        found: Object = json.loads((await self._client.request("GET", path, params=params)).body)
        return found

    async def delete(self, path: str, **params: str) -> None:
        """An object or a collection; harmless when there is none."""
        with suppress(NotFound):
            await self._client.request("DELETE", path, body=_AT_ONCE, params=params)

    async def remove(self, made: Object) -> None:
        """Deletes what ``create`` has made; harmless when it is gone."""
        await self.delete(f"{_COLLECTION[made['kind']]}/{made['metadata']['name']}")

    async def patch(self, path: str, patch: Object) -> None:
        """A merge patch; harmless when the object is gone."""
        with suppress(NotFound):
            body = json.dumps(patch).encode()
            await self._client.request("PATCH", path, body=body, content_type=_MERGE)

    async def create(self, objects: Iterable[Object]) -> None:
        """Makes many, some at the same time, in no particular order."""

        async def one(made: Object) -> None:
            body = json.dumps(made).encode()
            await self._client.request("POST", _COLLECTION[made["kind"]], body=body)

        await _concurrently(one, objects)

    async def churn(self) -> None:
        """Every second makes some objects and deletes those of the second before, until cancelled."""
        made: list[Object] = []
        for number in itertools.count():
            for old in made:
                await self.remove(old)
            made = list(churned(number))
            await self.create(made)
            await asyncio.sleep(1.0)

    # ------------------------------------------------------------ wiping

    async def refuse_foreign(self) -> None:
        """Raises NotOurs if there are nodes or pods of somebody else, or a scheduler at work."""
        for what, path in (("nodes", NODES), ("pods", ALL_PODS)):
            items = (await self.get(path, labelSelector=f"!{MADE}", limit="500"))["items"]
            if items:
                names = [item["metadata"]["name"] for item in items]
                shown = ", ".join(names[:_SHOWN]) + (" ..." if len(names) > _SHOWN else "")
                raise NotOurs(f"the cluster holds {what} that are not the benchmark's: {shown}")
        holder = await self._holder()
        if holder:
            raise NotOurs(f"a scheduler is at work or died at it: {holder} holds the lease")

    async def _holder(self) -> str:
        try:
            return str((await self.get(LEASE))["spec"].get("holderIdentity") or "")
        except NotFound:
            return ""

    async def wipe(self, *, everything: bool) -> None:
        """Deletes what the benchmark made, or all nodes and pods there are, and the traces of schedulers."""
        selector = {} if everything else {"labelSelector": MADE}
        for namespace in await self._namespaces() if everything else ["default"]:
            path = f"/api/v1/namespaces/{namespace}/pods"
            await self._delete_all(path, selector)
        await self._delete_all(NODES, selector)
        for name in PRIORITIES:
            await self.delete(f"{_CLASSES}/{name}")
        await self._wipe_devices()
        await self._wipe_held(_GROUPS, "groups")
        for path in (_VOLUME_CLAIMS, _VOLUMES):
            await self._wipe_held(path, "volumes")
        for namespace in ("default", "kube-system"):
            await self.delete(_EVENTS.format(namespace))
        for service in (await self.get(_SERVICES, labelSelector=f"{MADE}=churn"))["items"]:
            await self.delete(f"{_SERVICES}/{service['metadata']['name']}")
        await self.delete(LEASE)

    async def _delete_all(self, path: str, selector: Mapping[str, str]) -> None:
        """Deletes some at a time: the answer contains what was deleted."""
        while (await self.get(path, limit="1", **selector))["items"]:
            await self.delete(path, limit=_AT_A_TIME, **selector)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _wipe_devices(self) -> None:
        """Deletes classes, slices and claims of the benchmark; whoever frees claims may not be there."""
        await self.delete(f"{_DEVICE_CLASSES}/{CLASS}")
        await self.delete(_SLICES, labelSelector=f"{MADE}=devices")
        await self._wipe_held(_CLAIMS, "devices")

    async def _wipe_held(self, path: str, made: str) -> None:
        """Deletes objects that finalizers hold."""
        await self.delete(path, labelSelector=f"{MADE}={made}")

        async def let_go(one: Object) -> None:
            name = one["metadata"]["name"]
            with suppress(NotFound):
                await self._client.request(
                    "PATCH", f"{path}/{name}", body=_LET_GO, content_type=_MERGE
                )

        with suppress(NotFound):
            await _concurrently(
                let_go, (await self.get(path, labelSelector=f"{MADE}={made}"))["items"]
            )

    async def _namespaces(self) -> list[str]:
        items = (await self.get("/api/v1/namespaces"))["items"]
        return sorted(item["metadata"]["name"] for item in items)

    # ------------------------------------------------------------ measured pods

    async def version(self) -> str:
        """The present resource version of the pods."""
        found = await self.get(PODS, limit="1")
        return str(found["metadata"]["resourceVersion"])

    async def bindings(self, since: str) -> AsyncGenerator[tuple[str, str], None]:
        """(pod, node) of each measured pod as it is bound, from a resource version on; empty: all that there are, first."""
        rng, bound = np.random.default_rng(0), set[bytes]()
        while True:  # each watch ends after some minutes, or because the server's history is gone
            params = {"labelSelector": f"{MADE}=measured", "resourceVersion": since}
            async with aclosing(watch_once(self._client, PODS, params, rng)) as batches:
                async for lines in batches:
                    for line in lines:
                        if line.startswith(_ERROR):
                            since = ""
                            continue
                        # Pods that there are already come in no order.
                        if (version := _VERSION.search(line)) is not None:
                            since = str(max(int(since or 0), int(version[1])))
                        node, name = _NODE.search(line), _NAME.search(line)
                        if node is not None and name is not None and name[1] not in bound:
                            bound.add(name[1])
                            yield name[1].decode(), node[1].decode()


@asynccontextmanager
async def connected(kubeconfig: str) -> AsyncIterator[Cluster]:
    """The cluster of a kubeconfig: token, client certificate, plugin, or plain http. Raises ConnectionSettingsError."""
    connection = load_connection(kubeconfig=kubeconfig, wall=SystemClock().wall)
    async with KubeClient(
        connection, agent="aiokube-scheduler-bench", limits=ClientLimits(timeout=120.0)
    ) as client:
        yield Cluster(client)


async def _concurrently(work: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
    remaining = iter(items)

    async def worker() -> None:
        for item in remaining:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(_WIDTH):
            group.create_task(worker())
