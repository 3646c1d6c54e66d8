"""How a framework lets itself be measured. It has no clock: a Probe brings one, and hears what took how long."""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, ParamSpec, Protocol, TypeVar

from app.model.status import Code, Status

P = ParamSpec("P")
R = TypeVar("R")

# Names of the extension points in metrics.
PRE_FILTER: Final = "PreFilter"
FILTER: Final = "Filter"
POST_FILTER: Final = "PostFilter"
PRE_SCORE: Final = "PreScore"
SCORE: Final = "Score"
NORMALIZE: Final = "ScoreExtensionNormalize"
RESERVE: Final = "Reserve"
UNRESERVE: Final = "Unreserve"
PERMIT: Final = "Permit"
PRE_BIND: Final = "PreBind"
BIND: Final = "Bind"
POST_BIND: Final = "PostBind"

#: Names of the codes by number: what the ``status`` label says.
_NAMES: Final = tuple(code.name for code in Code)
_SUCCESS: Final = Code.Success.name
_ERROR: Final = Code.Error.name


class Probe(Protocol):
    """Hears of extension points, always, and of single plugins, when it wants to. Must be quick and must not raise."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def sample(self) -> bool:
        """Whether to time the plugins of the extension point that begins now."""
        ...

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """All plugins of a point were run; ``status`` is the name of a Code."""

    def plugin(self, plugin: str, point: str, status: str, seconds: float) -> None:
        """One plugin was run."""


class NullProbe:
    """Measures nothing."""

    def now(self) -> float:
        """Always 0."""
        return 0.0

    def sample(self) -> bool:
        """Never."""
        return False

    def extension_point(self, point: str, status: str, profile: str, seconds: float) -> None:
        """Ignores it."""

    def plugin(self, plugin: str, point: str, status: str, seconds: float) -> None:
        """Ignores it."""


NULL_PROBE: Final = NullProbe()


class Stopwatch:
    """Runs the extension points and the plugins of a profile, and tells a probe how long they took and how they ended."""

    def __init__(self, profile: str, probe: Probe = NULL_PROBE) -> None:
        self._profile: Final = profile
        self._probe: Final = probe
        self._now: Final = probe.now
        #: Whether single plugins are timed; only looked at between two awaits.
        self._sampling = False

    def point(self, point: str, run: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Runs an extension point."""
        self._sampling = self._probe.sample()
        started = self._now()
        status = _ERROR
        try:
            result = run(*args, **kwargs)
            status = _status_of(result)
        except Exception as error:
            status = _status_of(error, _ERROR)
            raise
        finally:
            self._sampling = False
            self._probe.extension_point(point, status, self._profile, self._now() - started)
        return result

    def plugin(
        self, point: str, name: str, run: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Runs a plugin at a point."""
        if not self._sampling:
            return run(*args, **kwargs)
        started = self._now()
        result = run(*args, **kwargs)
        self._probe.plugin(name, point, _status_of(result), self._now() - started)
        return result

    async def waiting_point(self, point: str, run: Awaitable[R]) -> R:
        """Runs an extension point that waits for others."""
        started = self._now()
        status = _ERROR
        try:
            result = await run
            status = _status_of(result)
        finally:
            self._probe.extension_point(point, status, self._profile, self._now() - started)
        return result

    async def waiting_plugin(self, point: str, name: str, run: Awaitable[R]) -> R:
        """Runs a plugin that waits for others."""
        if not self._probe.sample():
            return await run
        started = self._now()
        result = await run
        self._probe.plugin(name, point, _status_of(result), self._now() - started)
        return result


def _status_of(result: object, otherwise: str = _SUCCESS) -> str:
    """The name of the code in what an extension point or a plugin answered or raised."""
    if result is None:
        return otherwise
    if isinstance(result, tuple):
        result = result[0]
    status = result if isinstance(result, Status) else getattr(result, "status", None)
    return _NAMES[status.code] if isinstance(status, Status) else otherwise


class Participation:
    """How many attempts each plugin took part in.

    Which plugins sit out an attempt follows from the pod's template, so attempts are counted by that, and plugins only
    when somebody asks.
    """

    def __init__(self, points: Mapping[str, Sequence[str]]) -> None:
        """``points``: names of the plugins at PreFilter, Filter and PreScore."""
        self._points: Final = points
        self._by_skipped: Final[Counter[frozenset[str]]] = Counter()
        self._by_scorers: Final[Counter[tuple[str, ...]]] = Counter()

    def filtered(self, skipped: Collection[str]) -> None:
        """Nodes were filtered by all plugins but these."""
        self._by_skipped[frozenset(skipped)] += 1

    def scored(self, scorers: Iterable[str]) -> None:
        """Nodes were scored by these plugins."""
        self._by_scorers[tuple(scorers)] += 1

    def counts(self) -> dict[tuple[str, str], int]:
        """(plugin, extension point) -> attempts."""
        totals: Counter[tuple[str, str]] = Counter()
        for skipped, count in self._by_skipped.items():
            for point in (PRE_FILTER, FILTER):
                for plugin in self._points[point]:
                    totals[plugin, point] += 0 if plugin in skipped else count
        for scorers, count in self._by_scorers.items():
            for plugin in scorers:
                totals[plugin, SCORE] += count
                if plugin in self._points[PRE_SCORE]:
                    totals[plugin, PRE_SCORE] += count
        return dict(totals)
