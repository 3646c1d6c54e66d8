"""PreEnqueue: plugins that keep pods out of the queue (docs/spec/queue.md#preenqueue)."""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from app.model.pod import Pod
from app.model.status import SUCCESS, Code, Status
from app.state.queue.queued_pod import WAITING, QueuedPod
from app.state.queue.recorder import QueueRecorder

#: A PreEnqueue plugin: its name, and the method that returns its status for a pod.
PreEnqueueCheck = tuple[str, Callable[[Pod], Status]]

_SUCCESS: Final = Code.Success


class PreEnqueue:
    """Runs the PreEnqueue plugins of a pod's profile."""

    def __init__(
        self, checks: Callable[[Pod], Iterable[PreEnqueueCheck]], recorder: QueueRecorder
    ) -> None:
        """``checks`` returns the plugins for a pod, in the order in which they run."""
        self._checks: Final = checks
        self._recorder: Final = recorder

    def admits(self, queued: QueuedPod) -> bool:
        """Runs the plugins until one rejects the pod, starting with the one that gates it; notes which one rejected it.

        A plugin that gated the pod stays among its rejectors after it lets the pod through.
        """
        gating = queued.gating_plugin
        checks = self._checks(queued.pod)
        if gating:
            first = [check for check in checks if check[0] == gating]
            if not self._all_admit(first, queued):
                return False
            checks = [check for check in checks if check[0] != gating]
        if not self._all_admit(checks, queued):
            return False
        if gating:
            queued.gating_plugin, queued.gating_status = "", SUCCESS
        return True

    def let_through(self, gating_plugin: str, pods: Collection[QueuedPod]) -> Collection[QueuedPod]:
        """Those pods of a gated group that the plugin which gates them would let through now.

        A cheap test before ``admits``, which must still admit each of them. Returns all pods if the plugin is gone or
        raises: ``admits`` handles that.
        """
        sample = next(iter(pods))
        check = dict(self._checks(sample.pod)).get(gating_plugin)
        if check is None:
            return pods
        try:
            return [queued for queued in pods if check(queued.pod).code is _SUCCESS]
        except Exception:  # noqa: BLE001 - ``admits`` meets it again and reports it
            return pods

    def _all_admit(self, checks: Iterable[PreEnqueueCheck], queued: QueuedPod) -> bool:
        for plugin, check in checks:
            try:
                status = check(queued.pod)
            except Exception as error:  # noqa: BLE001 - an exception of a plugin gates the pod, as an Error status does
                self._recorder.plugin_failed(plugin, "PreEnqueue", queued.pod, error)
                status = Status(Code.Error, (str(error),), plugin)
            if status.code is not _SUCCESS:
                self._gate(queued, plugin, status)
                return False
        return True

    def _gate(self, queued: QueuedPod, plugin: str, status: Status) -> None:
        if plugin not in queued.rejectors:
            queued.unschedulable_plugins = frozenset({*queued.unschedulable_plugins, plugin})
            if queued.place in WAITING:
                self._recorder.unschedulable(plugin, queued.pod.spec.scheduler_name, 1)
        queued.gating_plugin, queued.gating_status = plugin, status
