"""Runs PostFilter, and the extension points from Reserve to PostBind."""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from app.framework.diagnosis import Diagnosis
from app.framework.handle import Effects
from app.framework.interface import AnyPlugin, CycleState, PostFilterResult
from app.framework.optional import FreesClaims
from app.framework.plugin_class import has, method_of
from app.framework.probe import (
    BIND,
    PERMIT,
    POST_BIND,
    POST_FILTER,
    PRE_BIND,
    RESERVE,
    UNRESERVE,
    Stopwatch,
)
from app.framework.profile import ProfilePlugins
from app.model.pod import Pod
from app.model.status import SUCCESS, Code, SchedulingError, Status

#: The longest time for which a Permit plugin may delay a pod.
MAX_PERMIT_SECONDS: Final = 15 * 60.0

#: A plugin's ``unreserve`` or ``post_bind``.
NodeCallback = Callable[[CycleState, Pod, str], None]


class CommitPoints:
    """The part of a Framework that concerns one chosen node, and PostFilter."""

    def __init__(self, plugins: ProfilePlugins, watch: Stopwatch) -> None:
        self._watch: Final = watch
        self._post_filter = plugins.at("postFilter")
        self._reserve = plugins.at("reserve")
        self._permit = plugins.at("permit")
        self._pre_bind = plugins.at("preBind")
        #: With their ``pre_bind_pre_flight``; None if a plugin has none.
        self._pre_flights = [(p, method_of(p, "pre_bind_pre_flight")) for p in self._pre_bind]
        self._revocable = [p for p in self._pre_bind if has(p, "undo_pre_bind")]
        self._bind = plugins.at("bind")
        self._post_bind = plugins.at("postBind")
        #: How often each PostFilter plugin was called.
        self.post_filter_calls: Final[Counter[str]] = Counter()
        self.has_permit: Final = bool(self._permit)
        #: The plugin that frees claims of a group; None if pods do not share claims with theirs.
        self.frees_claims: Final = next(
            (p for p in self._post_filter if isinstance(p, FreesClaims) and p.shares_claims()), None
        )

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Runs Reserve; the first failure stops. The caller unreserves."""
        return self._watch.point(RESERVE, self._run_reserve, state, pod, node_name)

    def _run_reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        for plugin in self._watch.each(self._reserve):
            status = plugin.reserve(state, pod, node_name)
            if status.code is Code.Success:
                continue
            if status.code.rejected:
                return status.by(plugin.NAME)
            text = f'running Reserve plugin "{plugin.NAME}": {status.message}'
            return Status(Code.Error, (text,), plugin.NAME)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Runs Unreserve of every Reserve plugin, last first. Raises ExceptionGroup after the last."""
        self._watch.point(UNRESERVE, self._run_unreserve, state, pod, node_name)

    def _run_unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        plugins = self._watch.each(self._reserve)
        calls = [(plugin.NAME, plugin.unreserve) for plugin in reversed(plugins)]
        self._run_all(UNRESERVE, calls, state, pod, node_name)

    def permit(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> tuple[Status, dict[str, float]]:
        """Runs Permit. Returns a status and, with Code.Wait, how long each plugin delays the pod, in seconds."""
        return self._watch.point(PERMIT, self._run_permit, state, pod, node_name)

    def _run_permit(
        self, state: CycleState, pod: Pod, node_name: str
    ) -> tuple[Status, dict[str, float]]:
        waits: dict[str, float] = {}
        for plugin in self._watch.each(self._permit):
            result = plugin.permit(state, pod, node_name)
            status = result.status
            if status.code.rejected:
                return status.by(plugin.NAME), {}
            if status.code is Code.Wait:
                waits[plugin.NAME] = min(result.timeout_seconds, MAX_PERMIT_SECONDS)
            elif not status.ok:
                text = f'running Permit plugin "{plugin.NAME}": {status.message}'
                return Status(Code.Error, (text,), plugin.NAME), {}
        text = "one or more plugins asked to wait and no plugin rejected pod"
        return (Status(Code.Wait, (text,)) if waits else SUCCESS), waits

    def pre_bind_work(self, state: CycleState, pod: Pod, node_name: str) -> list[AnyPlugin]:
        """The PreBind plugins with something to do. Raises SchedulingError."""
        work = []
        for plugin, flight in self._pre_flights:
            status = SUCCESS if flight is None else flight(state, pod, node_name)
            if status.code is Code.Success:
                work.append(plugin)
            elif status.code is not Code.Skip:
                raise SchedulingError(f'running PreBindPreFlight "{plugin.NAME}": {status.message}')
        return work

    async def pre_bind(
        self,
        state: CycleState,
        pod: Pod,
        node_name: str,
        effects: Effects,
        work: Sequence[AnyPlugin],
    ) -> None:
        """Runs these PreBind plugins in order. Raises SchedulingError."""
        await self._watch.waiting_point(
            PRE_BIND, self._run_pre_bind(state, pod, node_name, effects, work)
        )

    async def _run_pre_bind(
        self,
        state: CycleState,
        pod: Pod,
        node_name: str,
        effects: Effects,
        work: Sequence[AnyPlugin],
    ) -> None:
        for plugin in self._watch.each_waiting(work):
            status = await plugin.pre_bind(state, pod, node_name, effects)
            if not status.ok:
                raise SchedulingError(f'running PreBind plugin "{plugin.NAME}": {status.message}')

    async def undo_pre_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> None:
        """Runs ``undo_pre_bind`` of the PreBind plugins, last first. Raises ExceptionGroup after the last."""
        faults: list[Exception] = []
        for plugin in reversed(self._revocable):
            try:
                await plugin.undo_pre_bind(state, pod, node_name, effects)
            except Exception as error:  # noqa: BLE001 - raised below, after all have run
                error.add_note(f"plugin {plugin.NAME}")
                faults.append(error)
        if faults:
            raise ExceptionGroup(f"taking back PreBind of {pod.key}", faults)

    def bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> Awaitable[Status]:
        """Runs Bind plugins until one does not skip; returns its Status, which names the plugin if it failed."""
        return self._watch.waiting_point(BIND, self._run_bind(state, pod, node_name, effects))

    async def _run_bind(
        self, state: CycleState, pod: Pod, node_name: str, effects: Effects
    ) -> Status:
        for plugin in self._watch.each_waiting(self._bind):
            status = await plugin.bind(state, pod, node_name, effects)
            if status.code is Code.Success:
                return status
            if status.code is not Code.Skip:
                text = f'running Bind plugin "{plugin.NAME}": {status.message}'
                return Status(Code.Error, (text,))
        return Status(Code.Error, ("no Bind plugin took the pod",))

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Runs PostBind of every plugin. Raises ExceptionGroup after the last."""
        if self._post_bind:
            self._watch.point(POST_BIND, self._run_post_bind, state, pod, node_name)

    def _run_post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        calls = [(p.NAME, p.post_bind) for p in self._watch.each(self._post_bind)]
        self._run_all(POST_BIND, calls, state, pod, node_name)

    def _run_all(
        self,
        point: str,
        calls: Iterable[tuple[str, NodeCallback]],
        state: CycleState,
        pod: Pod,
        node: str,
    ) -> None:
        """Calls every plugin, even after one has raised. Raises ExceptionGroup."""
        faults: list[Exception] = []
        for name, tell in calls:
            try:
                tell(state, pod, node)
            except Exception as error:  # noqa: BLE001 - raised below, after all have run
                error.add_note(f"plugin {name}")
                faults.append(error)
        if faults:
            raise ExceptionGroup(f"{point} of {pod.key}", faults)

    def has_post_filter(self, name: str) -> bool:
        """Whether a plugin of this name runs at PostFilter."""
        return any(name == plugin.NAME for plugin in self._post_filter)

    @property
    def pod_group_post_filter(self) -> AnyPlugin | None:
        """The first PostFilter plugin that preempts for groups; None if there is none."""
        for plugin in self._post_filter:
            if has(plugin, "pod_group_post_filter"):
                return plugin
        return None

    async def post_filter(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult | None:
        """Runs PostFilter; None if there is no such plugin.

        Stops at Success, UnschedulableAndUnresolvable or an error. The reasons of other rejections are joined; the
        last one that sets or clears the nomination counts.
        """
        if not self._post_filter:
            return None
        return await self._watch.waiting_point(
            POST_FILTER, self._run_post_filter(state, pod, diagnosis, effects)
        )

    async def _run_post_filter(
        self, state: CycleState, pod: Pod, diagnosis: Diagnosis, effects: Effects
    ) -> PostFilterResult:
        nominated: str | None = None
        reasons: list[str] = []
        for plugin in self._watch.each_waiting(self._post_filter):
            self.post_filter_calls[plugin.NAME] += 1
            result = await plugin.post_filter(state, pod, diagnosis, effects)
            status = result.status
            if status.ok or status.code is Code.UnschedulableAndUnresolvable:
                return result
            if not status.code.rejected:
                return PostFilterResult(Status(Code.Error, status.reasons, plugin.NAME))
            if result.nominated_node is not None:
                nominated = result.nominated_node
            reasons += status.reasons
        return PostFilterResult(Status(Code.Unschedulable, tuple(reasons)), nominated)
