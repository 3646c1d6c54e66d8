"""How a framework lets itself be measured. It has no clock: a Probe has one, and takes the durations.

Extension points are timed always. Single plugins are timed now and then, by proxies that replace them: where nothing is
timed, plugins are called as if there were no probe.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple, cast

from app.model.status import Code, Status

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

#: The extension point that a plugin's method belongs to; those marked are coroutines.
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
}
#: Names of the codes by number: what the ``status`` label says.
_NAMES: Final = tuple(code.name for code in Code)
_SUCCESS: Final = Code.Success.name
_ERROR: Final = Code.Error.name

#: Is told seconds.
Observe = Callable[[float], None]


class Probe(Protocol):
    """Takes the durations of extension points, always, and of single plugins, when it asks for them. Must be quick and must not raise."""

    def now(self) -> float:
        """Seconds since some moment; never goes back."""
        ...

    def next_sample(self) -> int:
        """How many extension points to let pass before the plugins of one are timed again, at least 1."""
        ...

    def extension_point(self, point: str, status: str, profile: str) -> Observe:
        """Whom to tell that all plugins of a point were run; ``status`` is the name of a Code."""
        ...

    def plugin(self, plugin: str, point: str, status: str) -> Observe:
        """Whom to tell that a plugin was run."""
        ...


def _ignore(_seconds: float) -> None:
    pass


class NullProbe:
    """Measures nothing."""

    def now(self) -> float:
        """Always 0."""
        return 0.0

    def next_sample(self) -> int:
        """As rarely as can be."""
        return 2**62

    def extension_point(self, _point: str, _status: str, _profile: str) -> Observe:
        """Nobody."""
        return _ignore

    def plugin(self, _plugin: str, _point: str, _status: str) -> Observe:
        """Nobody."""
        return _ignore


NULL_PROBE: Final = NullProbe()


class Stopwatch:
    """Runs the extension points of a profile, and tells a probe how long they took and how they ended."""

    def __init__(self, profile: str, probe: Probe = NULL_PROBE) -> None:
        self._profile: Final = profile
        self._probe: Final = probe
        self._now: Final = probe.now
        self._observers: Final[dict[tuple[str, str], Observe]] = {}
        #: By the identity of the plugin, which the proxy keeps alive.
        self._proxies: Final[dict[int, _Timed]] = {}
        self._until_sample = probe.next_sample()
        #: Whether single plugins are timed; never across an await.
        self._sampling = False

    def point(self, point: str, run: Callable[[*A], R], /, *args: *A) -> R:
        """Runs an extension point; the plugins that ``run`` goes through are those that ``each`` gives it."""
        self._until_sample -= 1
        if not self._until_sample:
            self._until_sample = self._probe.next_sample()
            self._sampling = True
        started = self._now()
        try:
            result = run(*args)
        except Exception as error:
            self._tell(point, _status_of(error, _ERROR), started)
            raise
        finally:
            self._sampling = False
        self._tell(point, _status_of(result), started)
        return result

    async def waiting_point(self, point: str, run: Awaitable[R]) -> R:
        """Runs an extension point whose plugins are coroutines, those that ``each_waiting`` gives."""
        started = self._now()
        status = _ERROR
        try:
            result = await run
            status = _status_of(result)
        finally:
            self._tell(point, status, started)
        return result

    def each(self, plugins: Sequence[P]) -> Sequence[P]:
        """The plugins of an extension point that ``point`` runs, or their proxies when it is their turn to be timed."""
        return [self._proxy(p) for p in plugins] if self._sampling else plugins

    def one(self, plugin: P) -> P:
        """As ``each``, for one plugin."""
        return self._proxy(plugin) if self._sampling else plugin

    def each_waiting(self, plugins: Sequence[P]) -> Sequence[P]:
        """The plugins of an extension point that ``waiting_point`` runs, or their proxies when it is their turn to be timed."""
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
        seconds = self._now() - started
        observe = self._observers.get((point, status))
        if observe is None:
            observe = self._probe.extension_point(point, status, self._profile)
            self._observers[point, status] = observe
        observe(seconds)


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


def _status_of(result: object, otherwise: str = _SUCCESS) -> str:
    """The name of the code in what an extension point or a plugin answered or raised."""
    if isinstance(result, tuple):
        result = result[0]
    if isinstance(result, Status):
        return _NAMES[result.code]
    status = getattr(result, "status", None)
    return _NAMES[status.code] if isinstance(status, Status) else otherwise


class Participation:
    """How many attempts each plugin took part in.

    Which plugins sit out an attempt follows from the pod's template, so attempts are counted by that, and plugins only
    on request.
    """

    def __init__(self, points: Mapping[str, Sequence[str]]) -> None:
        """``points``: names of the plugins at PreFilter, Filter and PreScore."""
        self._points: Final = points
        self._by_skipped: Final[Counter[frozenset[str]]] = Counter()
        self._by_scorers: Final[Counter[tuple[str, ...]]] = Counter()

    def filtered(self, skipped: frozenset[str]) -> None:
        """Nodes were filtered by all plugins but these."""
        self._by_skipped[skipped] += 1

    def scored(self, scorers: tuple[str, ...]) -> None:
        """Nodes were scored by these plugins."""
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
