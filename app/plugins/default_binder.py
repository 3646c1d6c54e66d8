"""DefaultBinder: writes the Binding (docs/spec/plugins/default-binder.md)."""

from typing import ClassVar

from app.framework.handle import Effects
from app.framework.interface import CycleState, NoArguments
from app.model.pod import Pod
from app.model.status import Status


class DefaultBinder(NoArguments):
    """Binds a pod to its node through the API server."""

    NAME: ClassVar[str] = "DefaultBinder"

    async def bind(self, _state: CycleState, pod: Pod, node_name: str, effects: Effects) -> Status:
        """Never skips; a failed write is an Error with the server's text."""
        return await effects.bind(pod, node_name)
