"""Measures the durations of extension points and plugins; the clock and the metrics are those of a Probe.

Extension points are always timed. Single plugins are timed in a sample of the calls, by proxies that replace them;
otherwise plugins are called directly.
"""

import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, TypeVarTuple, cast

from app.model.status import SUCCESS, Code, Status, Unfinished

P = TypeVar("P")
R = TypeVar("R")
A = TypeVarTuple("A")

# Names of the extension points in metrics.
PRE_FILTER: Final = "PreFilter"
FILTER: Final = "Filter"
POST_FILTER: Final = "PostFilter"
PRE_SCORE: Final = "PreScore"
SCORE: Final = "Score"
RESERVE: Final = "Reserve"
UNRESERVE: Final = "Unreserve"
PERMIT: Final = "Permit"
PRE_BIND: Final = "PreBind"
BIND: Final = "Bind"
POST_BIND: Final = "PostBind"
PLACEMENT_GENERATE: Final = "PlacementGenerate"
PLACEMENT_SCORE: Final = "PlacementScore"

#: Method of a plugin -> its extension point, and whether the method is a coroutine.
_METHODS: Final[Mapping[str, tuple[str, bool]]] = {
    "pre_filter": (PRE_FILTER, False),
    "filter": (FILTER, False),
    "post_filter": (POST_FILTER, True),
    "pre_score": (PRE_SCORE, False),
    "score": (SCORE, False),
    "normalize": ("ScoreExtensionNormalize", False),
    "reserve": (RESERVE, False),
    "unreserve": (UNRESERVE, False),
    "permit": (PERMIT, False),
    "pre_bind": (PRE_BIND, True),
    "bind": (BIND, True),
    "post_bind": (POST_BIND, False),
    "generate_placements": (PLACEMENT_GENERATE, False),
    "score_placements": (PLACEMENT_SCORE, False),
    "normalize_placements": ("PlacementScoreExtensionNormalize", False),
}
#: Names of the codes by number, as in the ``status`` label.
_NAMES: Final = tuple(code.name for code in Code)
_SUCCESS: Final = Code.Success.name
_ERROR: Final = Code.Error.name

#: Receives a duration in seconds.
Observe = Callable[[float], None]


def _ignore(_seconds: float) -> None:
    pass


class Probe:
    """Has the clock and receives the durations; this base class measures nothing.

    The methods must return quickly and must not raise.
    """

    def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
        #: Seconds since a fixed moment; never decreases.
        self.now: Final = now

    def next_sample(self) -> int:
        """After how many extension points the plugins of one are timed again, at least 1."""
        return 2**62

    def extension_point(self, _point: str, _status: str, _profile: str) -> Observe:
        """The observer for all plugins of an extension point together; ``status`` is the name of a Code."""
        return _ignore

    def plugin(self, _plugin: str, _point: str, _status: str) -> Observe:
        """The observer for one plugin at an extension point."""
        return _ignore


NULL_PROBE: Final = Probe()


class Stopwatch:
    """Runs the extension points of a profile and reports their duration and status to a probe."""

    def __init__(self, profile: str, probe: Probe = NULL_PROBE) -> None:
        self._profile: Final = profile
        self._probe: Final = probe
        self._now: Final = probe.now
        self._observers: Final[dict[tuple[str, str], Observe]] = {}
        #: By the id() of the plugin, which the proxy keeps alive.
        self._proxies: Final[dict[int, _Timed]] = {}
        self._until_sample = probe.next_sample()
        #: Whether single plugins are timed now; never across an await.
        self.sampling = False

    def point(self, point: str, run: Callable[[*A], R], /, *args: *A) -> R:
        """Runs an extension point; ``run`` gets its plugins from ``each`` or ``one``."""
        self._until_sample -= 1
        if not self._until_sample:
            self._until_sample = self._probe.next_sample()
            self.sampling = True
        started = self._now()
        try:
            result = run(*args)
        except Unfinished:
            raise
        except Exception as error:
            self._tell(point, _status_of(error, _ERROR), started)
            raise
        finally:
            self.sampling = False
        told = point, _SUCCESS if result is None or result is SUCCESS else _status_of(result)
        observe = self._observers.get(told) or self._observer(*told)
        observe(self._now() - started)
        return result

    async def waiting_point(self, point: str, run: Awaitable[R]) -> R:
        """Runs an extension point whose plugins are coroutines; it gets its plugins from ``each_waiting``."""
        started = self._now()
        status = _ERROR
        try:
            result = await run
            status = _status_of(result)
        finally:
            self._tell(point, status, started)
        return result

    def each(self, plugins: Sequence[P]) -> Sequence[P]:
        """The plugins of a running extension point, or their proxies if this run is timed by plugin."""
        return [self._proxy(p) for p in plugins] if self.sampling else plugins

    def one(self, plugin: P) -> P:
        """The same for one plugin; a caller that has many plugins looks first whether ``sampling``."""
        return self._proxy(plugin) if self.sampling else plugin

    def each_waiting(self, plugins: Sequence[P]) -> Sequence[P]:
        """The same as ``each``, for an extension point run by ``waiting_point``."""
        self._until_sample -= 1
        if self._until_sample:
            return plugins
        self._until_sample = self._probe.next_sample()
        return [self._proxy(p) for p in plugins]

    def _proxy(self, plugin: P) -> P:
        proxy = self._proxies.get(id(plugin))
        if proxy is None:
            proxy = self._proxies[id(plugin)] = _Timed(plugin, self._probe)
        return cast("P", proxy)

    def _tell(self, point: str, status: str, started: float) -> None:
        observe = self._observers.get((point, status)) or self._observer(point, status)
        observe(self._now() - started)

    def _observer(self, point: str, status: str) -> Observe:
        observe = self._probe.extension_point(point, status, self._profile)
        self._observers[point, status] = observe
        return observe


class _Timed:
    """Replaces a plugin and times its methods, each of which is wrapped once."""

    def __init__(self, plugin: Any, probe: Probe) -> None:
        self._plugin: Final = plugin
        self._probe: Final = probe

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._plugin, name)
        method = _METHODS.get(name)
        if method is None:
            return value
        point, waits = method
        wrapped = self._waiting(point, value) if waits else self._timed(point, value)
        vars(self)[name] = wrapped
        return wrapped

    def _timed(self, point: str, run: Callable[..., Any]) -> Callable[..., Any]:
        now, tell = self._probe.now, self._teller(point)

        def timed(*args: Any) -> Any:
            started = now()
            result = run(*args)
            tell(result, now() - started)
            return result

        return timed

    def _waiting(self, point: str, run: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        now, tell = self._probe.now, self._teller(point)

        async def timed(*args: Any) -> Any:
            started = now()
            result = await run(*args)
            tell(result, now() - started)
            return result

        return timed

    def _teller(self, point: str) -> Callable[[object, float], None]:
        observers: dict[str, Observe] = {}

        def tell(result: object, seconds: float) -> None:
            status = _status_of(result)
            if status not in observers:
                observers[status] = self._probe.plugin(self._plugin.NAME, point, status)
            observers[status](seconds)

        return tell


def _status_of(result: Any, otherwise: str = _SUCCESS) -> str:
    """The name of the code in the result of, or the exception from, an extension point or plugin."""
    if isinstance(result, tuple):
        result = result[0]
    if _tells_nothing(type(result)):  # type: ignore[arg-type]  # a type has a hash
        return otherwise
    if isinstance(result, Status):
        return _NAMES[result.code]
    status = getattr(result, "status", None)
    return _NAMES[status.code] if isinstance(status, Status) else otherwise


@functools.cache
def _tells_nothing(kind: type) -> bool:
    """Whether no object of this type can be, or have, a status."""
    return not (kind.__dictoffset__ or issubclass(kind, Status) or hasattr(kind, "status"))


class Participation:
    """Counts the attempts that each plugin took part in.

    Attempts are counted by their set of skipped plugins, of which there are few; ``counts`` adds them up by plugin.
    """

    def __init__(self, points: Mapping[str, Sequence[str]]) -> None:
        """``points``: names of the plugins at PreFilter, Filter and PreScore."""
        self._points: Final = points
        self._by_skipped: Final[Counter[frozenset[str]]] = Counter()
        self._by_scorers: Final[Counter[tuple[str, ...]]] = Counter()

    def filtered(self, skipped: frozenset[str]) -> None:
        """Counts an attempt in which these plugins were skipped at Filter."""
        self._by_skipped[skipped] += 1

    def scored(self, scorers: tuple[str, ...]) -> None:
        """Counts an attempt that these plugins scored."""
        self._by_scorers[scorers] += 1

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
