"""Checks that a plugin keeps the rules which the scheduler relies on (docs/plugins.md, "Testing").

Only tests run these checks. A plugin that breaks a rule may seem to work for a long time: its results are kept when
they must not be, or the first evaluation of a node differs from the last one before a pod is bound.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
import numpy as np

from app.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    NodeLocal,
    Plugin,
    PreFilterResult,
    Verdicts,
)
from app.framework.optional import (
    AcceptsAll,
    ByTraits,
    ColumnScore,
    OnlyNarrows,
    SteadySkip,
    ZeroNormalized,
)
from app.framework.plugin_class import fault_of, has, method_of, registrations_of
from app.model.cluster_event import Action, Resource
from app.model.objects import PodSpec
from app.model.pod import LabelSet, Pod, PodTemplate
from app.model.status import SUCCESS, Code, Status
from app.state.columns.arrays import Int64, Rows
from app.state.queue.hints import EventRegistration
from app.state.table import NodeTable
from app.state.view import DryRunView, View

#: The number of rows that are checked one by one.
_FEW: Final = 4
_VERDICT_CODES: Final = frozenset(
    {
        Code.Success,
        Code.Error,
        Code.Unschedulable,
        Code.UnschedulableAndUnresolvable,
        Code.Pending,
    }
)

_Verdict = Status | None


class ContractError(AssertionError):
    """A plugin breaks rules; the message has one line per broken rule."""


class _Broken(Exception):  # noqa: N818 - the result cannot be checked any further
    pass


def check(plugin: Plugin, table: NodeTable, pods: Iterable[Pod]) -> None:
    """Checks a plugin with these nodes and pods, and restores the table. Raises ContractError."""
    pods = tuple(pods)
    checks = _Checks(plugin, table)
    checks.run(checks.of_the_class)
    for pod in pods:
        checks.run(checks.of_concerns, pod)
        if has(plugin, "filter"):
            checks.run(checks.of_filter, pod)
        if has(plugin, "score"):
            checks.run(checks.of_score, pod)
        if has(plugin, "reserve"):
            checks.run(checks.of_reserve, pod)
        checks.run(checks.of_offers, pod)
        checks.run(checks.of_hints, pod)
    if checks.faults:
        lines = "\n".join(f"- {fault}" for fault in checks.faults)
        raise ContractError(f"{plugin.NAME} breaks the contract of plugins:\n{lines}")


class _Checks:
    """The checks of one plugin and their findings."""

    def __init__(self, plugin: Plugin, table: NodeTable) -> None:
        self._plugin: Final[Any] = plugin
        self._table: Final = table
        self._node_local: Final = isinstance(plugin, NodeLocal)
        self._faults: Final[dict[str, None]] = {}

    @property
    def faults(self) -> list[str]:
        """The findings without duplicates, in the order in which they were made."""
        return list(self._faults)

    def run(self, step: Callable[..., None], *args: object) -> None:
        """Runs a check until its first fatal finding."""
        try:
            step(*args)
        except _Broken as broken:
            self._fault(str(broken))

    def _fault(self, text: str) -> None:
        self._faults.setdefault(text)

    # ------------------------------------------------------------ the class

    def of_the_class(self) -> None:
        """The class can be used as a plugin."""
        fault = fault_of(type(self._plugin))
        if fault:
            self._fault(fault)

    # ------------------------------------------------------------ concerns

    def of_concerns(self, pod: Pod) -> None:
        """The plugin neither rejects nor scores for a pod that it declares not to apply to."""
        concerns = method_of(self._plugin, "concerns")
        concerned: object = concerns is None or concerns(pod.template)
        if not isinstance(concerned, bool):
            raise _Broken(f"concerns returns {_kind(concerned)}, not a bool")
        if concerned:
            return
        where = f"concerns is false, but pods like {pod.name} are"
        if self._pre_filter(CycleState(), pod).status.code.rejected:
            self._fault(f"{where} rejected by pre_filter")
        if has(self._plugin, "filter") and any(self._ask_again(pod).values()):
            self._fault(f"{where} rejected by filter")
        state = self._before_score(pod) if has(self._plugin, "score") else None
        if state is not None and any(self._scores(state, pod, self._all()).values()):
            self._fault(f"{where} scored")

    # ------------------------------------------------------------ filter

    def of_filter(self, pod: Pod) -> None:
        """Verdicts are well formed, equal in every view, follow dry-run changes, and depend on the template only
        where kept."""
        state = self._after_pre_filter(pod)
        if state is None:
            return
        before = _contents(self._table)
        everything = self._filter(state, pod, View.everything(self._table))
        known = self._statuses(everything, View.everything(self._table))
        for view in self._views():
            said = self._ask(state, pod, view)
            self._compare_views("filter", known, said, view.n)
        self._check_words(state, pod, everything)
        if self._node_local:
            sibling = self._sibling(pod)
            self._compare_siblings("filter", known, self._ask_again(sibling))
            self._compare_neighbours("filter", pod, lambda: self._ask(state, pod, self._all()))
        if _contents(self._table) != before:
            self._fault("filter changes the columns it was shown")
        self._check_dry_runs(state, pod)

    def _after_pre_filter(self, pod: Pod) -> CycleState | None:
        """The cycle state after PreFilter; None if PreFilter skips or rejects the pod."""
        state = CycleState()
        return state if self._pre_filter(state, pod).status.ok else None

    def _pre_filter(self, state: CycleState, pod: Pod) -> PreFilterResult:
        pre_filter = method_of(self._plugin, "pre_filter")
        result: object = SUCCESS if pre_filter is None else pre_filter(state, pod)
        if not isinstance(result, Status | PreFilterResult):
            raise _Broken(f"pre_filter returns {_kind(result)}, not a Status or a PreFilterResult")
        return PreFilterResult(result) if isinstance(result, Status) else result

    def _filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        verdicts: object = self._plugin.filter(state, pod, view)
        if verdicts is None:
            return None
        if not isinstance(verdicts, Verdicts):
            raise _Broken(f"filter returns {_kind(verdicts)}, not Verdicts or None")
        _check_array("the codes of filter's Verdicts", verdicts.codes, np.int8, view.n)
        _check_array("the reasons of filter's Verdicts", verdicts.reasons, np.int32, view.n)
        for code in np.unique(verdicts.codes).tolist():
            if code not in _VERDICT_CODES:
                name = Code(code).name if code in list(Code) else str(code)
                raise _Broken(f"filter answers {name}, which is no verdict on a node")
        return verdicts

    def _statuses(self, verdicts: Verdicts | None, view: View) -> dict[int, _Verdict]:
        """The verdict on every row that has a node."""
        out: dict[int, _Verdict] = {}
        for position, row in enumerate(view.rows.tolist()):
            if self._table.exists[row]:
                out[row] = None if verdicts is None else self._status(verdicts, position)
        return out

    def _status(self, verdicts: Verdicts, position: int) -> _Verdict:
        code = Code(int(verdicts.codes[position]))
        if code is Code.Success:
            return None
        words: object = verdicts.text(int(verdicts.reasons[position]))
        if not (
            isinstance(words, tuple) and words and all(isinstance(w, str) and w for w in words)
        ):
            raise _Broken(
                f"filter gives {words!r} as the reasons of a rejection: a tuple of texts is needed"
            )
        return Status(code, words)

    def _ask(self, state: CycleState, pod: Pod, view: View) -> dict[int, _Verdict]:
        return self._statuses(self._filter(state, pod, view), view)

    def _ask_again(self, pod: Pod, view: View | None = None) -> dict[int, _Verdict]:
        """The verdicts of a new attempt; empty if PreFilter skips or rejects the pod."""
        state = self._after_pre_filter(pod)
        return {} if state is None else self._ask(state, pod, view or self._all())

    def _check_words(self, state: CycleState, pod: Pod, earlier: Verdicts | None) -> None:
        """A reason number has the same meaning in all results for a pod."""
        live = self._table.live_rows()
        for rows in (live[::-1], live[1:]):
            later = self._filter(state, pod, View(self._table, rows))
            if earlier is None or later is None:
                continue
            for position in live[earlier.codes[live] != 0].tolist():
                number = int(earlier.reasons[position])
                try:
                    same = later.text(number) == earlier.text(number)
                except LookupError:
                    same = False
                if not same:
                    raise _Broken(
                        f"filter's reason number {number} does not mean the same in two answers about one pod"
                    )

    def _check_dry_runs(self, state: CycleState, pod: Pod) -> None:
        """A pod added or removed in a dry run counts as one that is really added or removed."""
        for row in self._table.live_rows()[:_FEW].tolist():
            name = self._table.names[row]
            guest = msgspec.structs.replace(pod, name="guest", uid="guest", node_name=name)
            self._check_dry_run(state, pod, row, guest, arrives=True)
            for resident in list(self._table.pods[row].values())[:1]:
                self._check_dry_run(state, pod, row, resident, arrives=False)

    def _check_dry_run(
        self, state: CycleState, pod: Pod, row: int, other: Pod, *, arrives: bool
    ) -> None:
        """Raises _Broken: one row is enough."""
        table, rows = self._table, np.array([row], np.intp)
        dry_run = DryRunView(table, rows)
        (dry_run.add if arrives else dry_run.remove)(0, other)
        said = self._ask(state, pod, dry_run)
        (table.add_pod if arrives else table.remove_pod)(other)
        try:
            real = self._ask_again(pod, View(table, rows))
        finally:
            (table.remove_pod if arrives else table.add_pod)(other)
        if real and said != real:
            change = "added" if arrives else "removed"
            raise _Broken(
                f"filter says {_words(said[row])} of node {table.names[row]} with a pod {change} in a dry run, and "
                f"{_words(real[row])} when that is so in the table: the filter must read the view, not the table"
            )

    # ------------------------------------------------------------ score

    def of_score(self, pod: Pod) -> None:
        """Scores are well formed, in range once normalised, and depend on the template and the row only where kept."""
        state = self._before_score(pod)
        if state is None or not self._table.node_count:
            return
        before = _contents(self._table)
        known = self._scores(state, pod, self._all())
        for view in self._views():
            if not view.n:
                continue
            said = self._scores(state, pod, view)
            if self._node_local:
                self._compare_views("score", known, said, view.n)
        if self._node_local:
            sibling = self._sibling(pod)
            again = self._before_score(sibling)
            said = {} if again is None else self._scores(again, sibling, self._all())
            self._compare_siblings("score", known, said)
            self._compare_neighbours("score", pod, lambda: self._scores(state, pod, self._all()))
        if _contents(self._table) != before:
            self._fault("score changes the columns it was shown")

    def _before_score(self, pod: Pod) -> CycleState | None:
        """The cycle state before Score; None if the plugin does not score the pod."""
        state = self._after_pre_filter(pod) or CycleState()
        pre_score = method_of(self._plugin, "pre_score")
        if pre_score is None:
            return state
        status: object = pre_score(state, pod, self._all())
        if not isinstance(status, Status):
            raise _Broken(f"pre_score returns {_kind(status)}, not a Status")
        return state if status.ok else None

    def _scores(self, state: CycleState, pod: Pod, view: View) -> dict[int, int]:
        """The raw scores by row."""
        said: Int64 | None = self._plugin.score(state, pod, view)
        scores = np.zeros(view.n, np.int64) if said is None else said
        _check_array("score's answer", scores, np.int64, view.n)
        final, author = scores, "score"
        if has(self._plugin, "normalize"):
            given, author = scores.copy(), "normalize"
            final = self._plugin.normalize(state, pod, given, view)
            _check_array("normalize's answer", final, np.int64, view.n)
            if not np.array_equal(given, scores):
                self._fault("normalize changes the array it was given: that is kept for other pods")
        wrong = final[(final < 0) | (final > MAX_NODE_SCORE)]
        if len(wrong):
            raise _Broken(f"{author} gives {wrong[0]}: outside of 0 to {MAX_NODE_SCORE}")
        return dict(zip(view.rows.tolist(), scores.tolist(), strict=True))

    # ------------------------------------------------------------ optional base classes

    def of_offers(self, pod: Pod) -> None:
        """The promises of optional base classes (app.framework.optional) hold for the given nodes."""
        plugin = self._plugin
        if isinstance(plugin, SteadySkip):
            self._check_steady(plugin, pod)
        if isinstance(plugin, ByTraits):
            self._check_traits(plugin, pod)
        if isinstance(plugin, ColumnScore):
            self._check_column(plugin, pod)
        if isinstance(plugin, ZeroNormalized):
            self._check_zero(plugin, pod)
        state = self._after_pre_filter(pod) if has(plugin, "filter") else None
        if state is None:
            return
        rejected = any(self._ask(state, pod, self._all()).values())
        if isinstance(plugin, AcceptsAll) and plugin.accepts_all(state, pod) and rejected:
            self._fault("accepts_all is true, but filter rejects a node")
        if isinstance(plugin, OnlyNarrows) and plugin.only_narrows(state) and rejected:
            self._check_narrows(state, pod)

    def _check_column(self, plugin: ColumnScore, pod: Pod) -> None:
        column = plugin.column(pod)
        if column is not None and len(column) < self._table.size:
            raise _Broken(f"column gives {len(column)} scores for {self._table.size} rows")
        scores = self._scores(CycleState(), pod, self._all())
        kept = np.zeros(self._table.size, np.int64) if column is None else column
        if any(scores[row] != kept[row] for row in scores):
            self._fault("column and score differ")

    def _check_zero(self, plugin: ZeroNormalized, pod: Pod) -> None:
        state = self._before_score(pod)
        if state is None or not self._table.node_count:
            return
        view = self._all()
        scores = self._plugin.normalize(state, pod, np.zeros(view.n, np.int64), view)
        if (scores != plugin.ZERO_NORMALIZED).any():
            self._fault(f"normalize does not give {plugin.ZERO_NORMALIZED} where all scores are 0")

    def _check_traits(self, plugin: ByTraits, pod: Pod) -> None:
        traits = plugin.traits(pod)
        if traits is None:
            return
        view = self._all()
        groups = list(zip(*(trait.of(view).tolist() for trait in traits), strict=True))
        group_of = dict(zip(view.rows.tolist(), groups or [()] * view.n, strict=True))
        results: list[tuple[str, Mapping[int, object]]] = []
        if has(self._plugin, "filter"):
            results.append(("filter", self._ask_again(pod)))
        state = self._before_score(pod) if has(self._plugin, "score") else None
        if state is not None:
            results.append(("score", self._scores(state, pod, view)))
        for method, by_row in results:
            first: dict[object, object] = {}
            same = [first.setdefault(group_of[row], v) == v for row, v in by_row.items()]
            if not all(same):
                self._fault(f"{method} differs between nodes with equal traits")

    def _check_narrows(self, state: CycleState, pod: Pod) -> None:
        """No rejected node becomes feasible by a pod that is added to it."""
        for row, verdict in self._ask(state, pod, self._all()).items():
            if verdict is None:
                continue
            view = DryRunView(self._table, np.array([row], np.intp))
            name = self._table.names[row]
            view.add(0, msgspec.structs.replace(pod, name="guest", uid="guest", node_name=name))
            if self._ask(state, pod, view)[row] is None:
                raise _Broken(f"only_narrows is true, but a pod added to {name} makes it feasible")

    def _check_steady(self, plugin: SteadySkip, pod: Pod) -> None:
        """A skipped pod is skipped beside a plain pod with its labels, too, and so is a replica of it."""
        before = self._skips(plugin, pod)
        replica = msgspec.structs.replace(pod, name=f"{pod.name}-replica", uid="replica")
        for method in before - self._skips(plugin, replica):
            self._fault(f"{method} skips a pod, but no replica of it")
        for row in self._table.live_rows()[:1].tolist():
            guest = msgspec.structs.replace(
                pod, name="guest", uid="guest", template=PodTemplate(PodSpec())
            ).on(self._table.names[row])
            self._table.add_pod(guest)
            try:
                after = self._skips(plugin, pod)
            finally:
                self._table.remove_pod(guest)
            for method in before - after:
                self._fault(f"{method} skips a pod that it does not skip beside a plain pod")

    def _skips(self, plugin: SteadySkip, pod: Pod) -> set[str]:
        """The methods that skip the pod and promise to do so as long as the surroundings are the same."""
        state, skips = CycleState(), set()
        if (
            has(self._plugin, "pre_filter")
            and self._pre_filter(state, pod).status.code is Code.Skip
        ):
            skips.add("pre_filter")
        pre_score = method_of(self._plugin, "pre_score")
        steady = pre_score is not None and plugin.skips_scoring_steadily(pod.template)
        if steady and pre_score is not None:
            status: Status = pre_score(state, pod, self._all())
            skips |= {"pre_score"} if status.code is Code.Skip else set()
        return skips

    # ------------------------------------------------------------ reserve

    def of_reserve(self, pod: Pod) -> None:
        """Unreserve may be called twice, and without Reserve."""
        if not has(self._plugin, "unreserve"):
            return
        for row in self._table.live_rows()[:1].tolist():
            name = self._table.names[row]
            state, assumed = self._after_pre_filter(pod) or CycleState(), pod.on(name)
            self._plugin.unreserve(state, assumed, name)
            status: object = self._plugin.reserve(state, assumed, name)
            self._plugin.unreserve(state, assumed, name)
            self._plugin.unreserve(state, assumed, name)
            if not isinstance(status, Status):
                raise _Broken(f"reserve returns {_kind(status)}, not a Status")

    # ------------------------------------------------------------ hints

    def of_hints(self, pod: Pod) -> None:
        """Hints accept additions and deletions, return a bool, and depend on the template only if registered so."""
        for registration in registrations_of(self._plugin) or ():
            if not isinstance(registration, EventRegistration):
                raise _Broken(
                    f"events_to_register yields {_kind(registration)}, not an EventRegistration"
                )
            if registration.hint is None:
                continue
            for old, new in self._changes(registration):
                self._check_hint(registration, pod, old, new)

    def _check_hint(
        self, registration: EventRegistration, pod: Pod, old: object, new: object
    ) -> None:
        hint, label = registration.hint, registration.event.label
        assert hint is not None  # noqa: S101 - the caller has checked
        said: object = hint(pod, old, new)
        if not isinstance(said, bool):
            raise _Broken(f"the hint for {label} returns {_kind(said)}, not a bool")
        if registration.template_only and hint(self._sibling(pod), old, new) != said:
            self._fault(
                f"the hint for {label} is registered as template_only, but its answer changes with the pod's name, "
                "labels or namespace"
            )

    def _changes(self, registration: EventRegistration) -> Iterator[tuple[object, object]]:
        """Changes that match the event, one for each node or each pod on a node."""
        resource, action = registration.event.resource, registration.event.action
        objects: list[object] = []
        if resource is Resource.Node:
            objects += [node for node in self._table.nodes if node is not None]
        elif resource in {Resource.Pod, Resource.AssignedPod}:
            objects += [pod for pods in self._table.pods for pod in pods.values()]
        for thing in objects:
            if action & Action.Add:
                yield None, thing
            if action & Action.Update:
                yield thing, thing
            if action & Action.Delete:
                yield thing, None

    # ------------------------------------------------------------ comparing answers

    def _all(self) -> View:
        return View(self._table, self._table.live_rows())

    def _views(self) -> Iterator[View]:
        """Views of some rows, in several orders, of single rows, and of none."""
        live = self._table.live_rows()
        chosen: list[Rows] = [live[::-1], live[::2], live[1::2], live[:0]]
        chosen += [live[i : i + 1] for i in range(min(len(live), _FEW))]
        return (View(self._table, rows) for rows in chosen)

    def _sibling(self, pod: Pod) -> Pod:
        """Another pod of the same template."""
        return msgspec.structs.replace(
            pod,
            name="another",
            uid="another",
            namespace="elsewhere",
            labels=LabelSet({"another": "pod"}),
        )

    def _compare_views(
        self, point: str, known: Mapping[int, object], said: Mapping[int, object], n: int
    ) -> None:
        for row, answer in said.items():
            if answer != known[row]:
                self._fault(
                    f"{point} says {_words(answer)} of node {self._table.names[row]} in a view of {n} rows, and "
                    f"{_words(known[row])} in one of all rows: answers must be in the order of the view's rows and "
                    "follow "
                    "from each row alone"
                )
                return

    def _compare_siblings(
        self, point: str, known: Mapping[int, object], said: Mapping[int, object]
    ) -> None:
        if known != said:
            self._fault(
                f"{point} is NodeLocal, but its answers change with the pod's name, labels or namespace: those of "
                "one pod "
                "are kept for all pods of its template"
            )

    def _compare_neighbours(
        self, point: str, pod: Pod, ask: Callable[[], Mapping[int, object]]
    ) -> None:
        """The results for a row do not change with another row."""
        known, epoch = ask(), self._plugin.epoch()
        for row in self._table.live_rows()[:_FEW].tolist():
            name = self._table.names[row]
            guest = msgspec.structs.replace(pod, name="guest", uid="guest", node_name=name)
            self._table.add_pod(guest)
            try:
                said, same_epoch = dict(ask()), self._plugin.epoch() == epoch
            finally:
                self._table.remove_pod(guest)
            said[row] = known[row]
            if same_epoch and said != known:
                self._fault(
                    f"{point} is NodeLocal, but its answers change when a pod comes to another node, and the epoch "
                    "does not"
                )
                return


def _check_array(what: str, array: object, dtype: type[np.generic], n: int) -> None:
    wanted = f"{np.dtype(dtype).name}[{n}]"
    if not isinstance(array, np.ndarray):
        raise _Broken(f"{what} is {_kind(array)}, not an array {wanted}")
    if array.dtype != dtype or array.shape != (n,):
        shape = ", ".join(map(str, array.shape))
        raise _Broken(f"{what} is {array.dtype.name}[{shape}], not {wanted}")


def _contents(table: NodeTable) -> list[bytes]:
    """The columns that views share with the table."""
    columns = [
        table.allocatable.matrix,
        table.requested.matrix,
        table.nonzero.matrix,
        table.allocatable_pods,
        table.pod_count,
        table.unschedulable,
        table.exists,
        table.taints.codes,
    ]
    return [column.tobytes() for column in columns]


def _words(answer: object) -> str:
    if answer is None:
        return "yes"
    return f'"{answer.message}" ({answer.code.name})' if isinstance(answer, Status) else str(answer)


def _kind(thing: object) -> str:
    return "None" if thing is None else f"a {type(thing).__name__}"
