"""The one-word state of a pod that kubectl shows, and its counts of ready containers and restarts."""

from typing import Any, NamedTuple

from app.sim.objects import find_condition, is_being_deleted, is_true
from app.sim.store import Object


class PodSummary(NamedTuple):
    ready: int
    containers: int
    restarts: int
    last_restart: str | None
    """RFC 3339 time of the last termination, if any container restarted."""


def pod_summary(pod: Object) -> PodSummary:
    """Counts containers, those that are ready, and restarts."""
    statuses = pod.get("status", {}).get("containerStatuses", ())
    ends = [
        state.get("lastState", {}).get("terminated", {}).get("finishedAt") for state in statuses
    ]
    return PodSummary(
        ready=sum(
            bool(state.get("ready")) and "running" in state.get("state", {}) for state in statuses
        ),
        containers=len(pod["spec"].get("containers", ())),
        restarts=sum(state.get("restartCount", 0) for state in statuses),
        last_restart=max(filter(None, ends), default=None),
    )


def pod_status(pod: Object) -> str:
    """The STATUS column: the phase, or the most telling reason found in conditions and containers."""
    status = pod.get("status", {})
    if is_being_deleted(pod) and status.get("reason") != "NodeLost":
        done = status.get("phase") in ("Succeeded", "Failed")
        return _reason(pod) if done else "Terminating"
    return _reason(pod)


def _reason(pod: Object) -> str:
    status = pod.get("status", {})
    text = status.get("reason") or status.get("phase", "")
    scheduled = find_condition(pod, "PodScheduled")
    if scheduled is not None and scheduled.get("reason") == "SchedulingGated":
        text = "SchedulingGated"
    return _init_reason(pod) or _container_reason(pod, text)


def _init_reason(pod: Object) -> str:
    statuses = pod.get("status", {}).get("initContainerStatuses", ())
    for index, container in enumerate(statuses):
        state = container.get("state", {})
        terminated = state.get("terminated")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if terminated is not None:
            return f"Init:{_terminated_text(terminated)}"
        waiting = state.get("waiting", {}).get("reason", "")
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}"
        return f"Init:{index}/{len(pod['spec'].get('initContainers', ()))}"
    return ""


def _container_reason(pod: Object, text: str) -> str:
    running = False
    for container in reversed(pod.get("status", {}).get("containerStatuses", ())):
        state = container.get("state", {})
        if state.get("waiting", {}).get("reason"):
            text = state["waiting"]["reason"]
        elif "terminated" in state:
            text = _terminated_text(state["terminated"])
        elif container.get("ready") and "running" in state:
            running = True
    if text == "Completed" and running:
        return "Running" if is_true(pod, "Ready") else "NotReady"
    return text


def _terminated_text(terminated: dict[str, Any]) -> str:
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"
