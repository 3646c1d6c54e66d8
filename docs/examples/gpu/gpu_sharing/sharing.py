"""GpuSharing: a pod gets a node with room on one GPU, or with as many whole GPUs as it needs, and is told which."""

from collections.abc import Iterator


from aiokube_scheduler.framework.api import (
    SKIP,
    SUCCESS,
    Action,
    ClusterEvent,
    Code,
    CycleState,
    Effects,
    EventRegistration,
    Handle,
    NodeLocal,
    Pod,
    PodTemplate,
    Resource,
    Status,
    Verdicts,
    View,
    reject,
    unresolvable,
    unschedulable,
)
from gpu_sharing.gpus import WHOLE, GpuArgs, Gpus

FULL = "node(s) had no GPU with enough room"


class GpuSharing(NodeLocal):
    """Filters nodes by what is left of their GPUs, chooses the pod's GPUs, and binds it with their numbers in a
    label.
    """

    NAME = "GpuSharing"

    def __init__(self, args: object, handle: Handle) -> None:
        self._gpus = Gpus.of(handle, GpuArgs.read(args))
        self._profile = handle.profile_name

    def concerns(self, template: PodTemplate) -> bool:
        """Pods that request a part of a GPU, or GPUs."""
        return self._gpus.request(template) > 0

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Rejects requests such as one and a half GPUs."""
        request = self._gpus.request(pod.template)
        if request > WHOLE and request % WHOLE:
            return unresolvable(f"{request} thousandths are neither a part of a GPU nor whole GPUs")
        return SUCCESS

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects nodes without enough room on their GPUs."""
        left, request = self._gpus.left(view), self._gpus.request(pod.template)
        if request < WHOLE:
            fits = (left >= request).any(axis=1)
        else:
            fits = (left == WHOLE).sum(axis=1) * WHOLE >= request
        return reject(~fits, Code.Unschedulable, FULL)

    def events_to_register(self) -> Iterator[EventRegistration]:
        """A pod goes, or a node comes or gets more GPUs."""
        change = Action.Add | Action.UpdateNodeAllocatable
        yield EventRegistration(ClusterEvent(Resource.Node, change))
        yield EventRegistration(ClusterEvent(Resource.AssignedPod, Action.Delete))

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Chooses the pod's GPUs."""
        if self._gpus.request(pod.template) <= 0:
            return SUCCESS
        chosen = self._gpus.reserve(pod, node_name, self._profile)
        return unschedulable(FULL) if chosen is None else SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Takes the choice back."""
        self._gpus.forget(pod, node_name)

    async def bind(self, state: CycleState, pod: Pod, node_name: str, effects: Effects) -> Status:
        """Binds the pod and tells which GPUs it has, in a label and an annotation of the same name."""
        chosen = self._gpus.chosen(pod, node_name)
        if chosen is None:
            return SKIP
        told = {self._gpus.args.index_label: "-".join(map(str, chosen))}
        return await effects.bind(pod, node_name, labels=told, annotations=told)
