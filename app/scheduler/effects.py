"""Carries out what plugins want done in the cluster (Effects), through the API server."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from app.kube.errors import AlreadyExists, Conflict, KubeError
from app.kube.resource_claims import ResourceClaimRequests
from app.kube.writer import KubeWriter
from app.model.devices import ResourceClaim
from app.model.pod import Pod
from app.model.status import ConflictError, SchedulingError, Status
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.observe.pod_events import PodEvents
from app.scheduler.parts import Parts
from app.scheduler.preemption import Evictor, ExtenderPreemption

R = TypeVar("R")


class ApiClaims:
    """ResourceClaimEffects (app.framework.handle)."""

    def __init__(self, requests: ResourceClaimRequests, writer: KubeWriter) -> None:
        self._requests: Final = requests
        self._writer: Final = writer

    async def get(self, namespace: str, name: str) -> ResourceClaim:
        return await _faults(self._requests.get(namespace, name))

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        return await _faults(self._requests.create(claim))

    async def patch(
        self, claim: ResourceClaim, changes: Mapping[str, Any], *, status: bool = False
    ) -> ResourceClaim:
        return await _faults(self._requests.patch(claim, changes, status=status))

    async def add_finalizer(self, claim: ResourceClaim, finalizer: str) -> ResourceClaim:
        return await _faults(self._requests.add_finalizer(claim, finalizer))

    async def delete(self, claim: ResourceClaim) -> None:
        await _faults(self._requests.delete(claim))

    async def tell_pod(self, pod: Pod, status: Mapping[str, Any]) -> None:
        await _faults(self._writer.patch_extended_claim_status(pod, status))


async def _faults(work: Awaitable[R]) -> R:
    """The result; faults as SchedulingError."""
    try:
        return await work
    except AlreadyExists as error:
        raise SchedulingError(str(error)) from error
    except Conflict as error:
        raise ConflictError(str(error)) from error
    except KubeError as error:
        raise SchedulingError(str(error)) from error


class ApiEffects:
    """Effects (app.framework.handle) over a KubeWriter. Faults are raised as SchedulingError with the server's text."""

    def __init__(
        self,
        parts: Parts,
        *,
        writer: KubeWriter,
        resource_claims: ResourceClaimRequests,
        events: PodEvents,
        evictor: Evictor,
        extenders: ExtenderPreemption,
        before_binding: Callable[[str], None],
    ) -> None:
        """``before_binding`` is called with a pod's uid right before its binding is sent, and may raise."""
        self._writer: Final = writer
        self._events: Final = events
        self._before_binding: Final = before_binding
        self.resource_claims: Final = ApiClaims(resource_claims, writer)
        self.asks_about_victims: Final = extenders.concerns
        self.agree_on_victims: Final = extenders.ask
        self.evict: Final = evictor.start
        self.latest: Final = parts.state.latest
        self.now: Final = parts.clock.wall

    def event(self, pod: Pod, *, reason: str, action: str, note: str) -> None:
        self._events.pod_event(
            pod, kind="Normal", reason=reason, action=action, note=note, now=self.now()
        )

    def bind(
        self,
        pod: Pod,
        node_name: str,
        *,
        labels: Mapping[str, str] = {},
        annotations: Mapping[str, str] = {},
    ) -> Coroutine[Any, Any, Status]:
        added = {"labels": labels, "annotations": annotations}
        return self._writer.bind(
            pod.namespace, pod.name, pod.uid, node_name, self._before_binding, added
        )

    async def update_volume(self, volume: PersistentVolume, changes: Mapping[str, Any]) -> None:
        version = volume.resource_version
        await _faults(
            self._writer.patch_persistent_volume(
                volume.name, resource_version=version, changes=changes
            )
        )

    async def update_claim(self, claim: PersistentVolumeClaim, changes: Mapping[str, Any]) -> None:
        version = claim.resource_version
        await _faults(
            self._writer.patch_persistent_volume_claim(
                claim.namespace, claim.name, resource_version=version, changes=changes
            )
        )

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
