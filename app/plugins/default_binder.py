"""DefaultBinder: writes the Binding (docs/spec/plugins/default-binder.md)."""

from typing import ClassVar

from app.framework.interface import CycleState, Effects, Handle
from app.model.pod import Pod
from app.model.status import Status


class DefaultBinder:
    """Binds a pod to its node through the API server."""

    NAME: ClassVar[str] = "DefaultBinder"

    def __init__(self, args: object, handle: Handle) -> None:
        """Takes no arguments."""

    async def bind(self, _state: CycleState, pod: Pod, node_name: str, effects: Effects) -> Status:
        """Never skips; a failed write is an Error with the server's text."""
        return await effects.bind(pod, node_name)
