"""Carries out what plugins want done in the cluster (Effects), through the API server."""

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar

from app.framework.interface import Eviction
from app.kube.errors import AlreadyExists, Conflict, KubeError
from app.kube.resource_claims import ResourceClaimRequests
from app.kube.writer import KubeWriter
from app.model.devices import ResourceClaim
from app.model.objects import PersistentVolume, PersistentVolumeClaim
from app.model.pod import Pod
from app.model.status import SUCCESS, Code, ConflictError, SchedulingError, Status
from app.observe.pod_events import PodEvents
from app.runtime.clock import Clock
from app.scheduler.preemption import Evictor, ExtenderPreemption
from app.wire.extender_v1 import Victims

R = TypeVar("R")


class ApiClaims:
    """ResourceClaimEffects (app.framework.interface)."""

    def __init__(self, requests: ResourceClaimRequests, writer: KubeWriter) -> None:
        self._requests: Final = requests
        self._writer: Final = writer

    async def get(self, namespace: str, name: str) -> ResourceClaim:
        """Looks it up."""
        return await _faults(self._requests.get(namespace, name))

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Creates it."""
        return await _faults(self._requests.create(claim))

    async def patch(
        self, claim: ResourceClaim, changes: Mapping[str, Any], *, status: bool = False
    ) -> ResourceClaim:
        """Patches it at its resource version."""
        return await _faults(self._requests.patch(claim, changes, status=status))

    async def add_finalizer(self, claim: ResourceClaim, finalizer: str) -> ResourceClaim:
        """Writes one more finalizer at its resource version."""
        return await _faults(self._requests.add_finalizer(claim, finalizer))

    async def drop_consumer(self, claim: ResourceClaim, uid: str) -> ResourceClaim:
        """Patches its reservations."""
        return await _faults(self._requests.drop_consumer(claim, uid))

    async def delete(self, claim: ResourceClaim) -> None:
        """Deletes it."""
        await _faults(self._requests.delete(claim))

    async def tell_pod(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Patches the pod's status."""
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
    """Effects (app.framework.interface) over a KubeWriter. Faults are raised as SchedulingError with the server's text."""

    def __init__(
        self,
        writer: KubeWriter,
        resource_claims: ResourceClaimRequests,
        clock: Clock,
        events: PodEvents,
        evictor: Evictor,
        extenders: ExtenderPreemption,
    ) -> None:
        self._writer: Final = writer
        self._resource_claims: Final = ApiClaims(resource_claims, writer)
        self._events: Final = events
        self._clock: Final = clock
        self._evictor: Final = evictor
        self._extenders: Final = extenders

    @property
    def resource_claims(self) -> ApiClaims:
        """Reads and writes ResourceClaims."""
        return self._resource_claims

    def event(self, pod: Pod, *, reason: str, action: str, note: str) -> None:
        """Records an event."""
        self._events.pod_event(
            pod, kind="Normal", reason=reason, action=action, note=note, now=self.now()
        )

    def asks_about_victims(self, pod: Pod) -> bool:
        """Whether any extender with a preempt verb is interested in this pod."""
        return self._extenders.concerns(pod)

    async def agree_on_victims(
        self, pod: Pod, candidates: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Asks the extenders with a preempt verb."""
        return await self._extenders.ask(pod, candidates)

    def evict(self, eviction: Eviction) -> None:
        """Starts to evict."""
        self._evictor.start(eviction)

    async def bind(self, pod: Pod, node_name: str) -> Status:
        """Writes the Binding; an Error has the server's text."""
        result = await self._writer.bind(pod.namespace, pod.name, pod.uid, node_name)
        return SUCCESS if result.bound else Status(Code.Error, (result.message,))

    async def update_volume(self, volume: PersistentVolume, changes: Mapping[str, Any]) -> None:
        """Patches a PersistentVolume at its resource version."""
        try:
            await self._writer.patch_persistent_volume(
                volume.name, resource_version=volume.resource_version, changes=changes
            )
        except KubeError as error:
            raise SchedulingError(str(error)) from error

    async def update_claim(self, claim: PersistentVolumeClaim, changes: Mapping[str, Any]) -> None:
        """Patches a PersistentVolumeClaim at its resource version."""
        try:
            await self._writer.patch_persistent_volume_claim(
                claim.namespace,
                claim.name,
                resource_version=claim.resource_version,
                changes=changes,
            )
        except KubeError as error:
            raise SchedulingError(str(error)) from error

    async def sleep(self, seconds: float) -> None:
        """Waits."""
        await asyncio.sleep(seconds)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._clock.wall()
