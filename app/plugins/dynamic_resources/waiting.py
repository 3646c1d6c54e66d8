"""Waits until the devices of a pod's claims are ready, as their drivers tell in the claims (KEP-5007)."""

from typing import Final

from app.framework.interface import Effects
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.plugins.dynamic_resources import conditions
from app.plugins.dynamic_resources.attempt import PodDevices
from app.plugins.dynamic_resources.figures import Figures
from app.state.devices.claims import ResourceClaims

_POLL_SECONDS: Final = 5.0


class _TooLate(SchedulingError):  # noqa: N818 - a verdict
    """A device has not become ready in time."""


class Waiter:
    """Looks at claims every few seconds. ``timeout``: seconds to wait at most, and that a claim may take since its allocation."""

    def __init__(self, known: ResourceClaims, timeout: float, figures: Figures) -> None:
        self._known: Final = known
        self._timeout: Final = timeout
        self._awaited: Final = figures.conditions_awaited

    async def wait(self, devices: PodDevices, pod: Pod, node_name: str, effects: Effects) -> None:
        """Returns once all conditions hold. Raises SchedulingError if one cannot, or after the timeout."""
        if not conditions.any_in(devices.claims):
            return
        effects.event(
            pod,
            reason="BindingConditionsPending",
            action="Scheduling",
            note=f"waiting for binding conditions for device on node {node_name}",
        )
        outcome = "error"
        try:
            await self._poll(devices, effects)
            outcome = "success"
        except conditions.BindingFailed:
            outcome = "failure"
            raise
        except _TooLate:
            outcome = "timeout"
            raise
        finally:
            self._awaited.update((driver, outcome) for driver in conditions.drivers(devices.claims))

    async def _poll(self, devices: PodDevices, effects: Effects) -> None:
        left = self._timeout
        while not self._ready(devices, effects.now()):
            await effects.sleep(min(_POLL_SECONDS, left))
            left -= _POLL_SECONDS
            if left <= 0:  # there is no look at the last moment
                raise _TooLate("device binding timeout: context deadline exceeded")

    def _ready(self, devices: PodDevices, now: float) -> bool:
        for at, claim in enumerate(devices.claims):
            current = self._known.get(claim.name, claim.namespace)
            if current is None:
                raise SchedulingError(f'could not find ResourceClaim "{claim.key}"')
            devices.claims[at] = current
            if conditions.ready(current):
                continue
            if conditions.timed_out(current, now, self._timeout):
                raise _TooLate(f"device binding timeout: claim={current.name}")
            return False
        return True
