"""Keeps the memo of each template of a profile, within a limit of memory."""

from collections.abc import Callable, Sequence
from typing import Final

from app.framework.interface import NodeLocal, PreFilterPlugin, PreFilterResult
from app.framework.memo import NodeLocalPlugins, TemplateMemo
from app.framework.profile import Scorer
from app.model.pod import Pod, PodTemplate
from app.model.status import SKIP, Code, Status
from app.state.table import NodeTable

#: The memory limit for the memos of a profile, and what each row adds to it; beyond it the least recently used ones are
#: dropped. With 100,000 nodes this is room for the totals of a thousand templates.
_MEMO_BYTES: Final = 24 * 2**20
_MEMO_BYTES_PER_ROW: Final = 2500
#: The limit for the JSON size of the pod specs that these memos keep alive.
_SPEC_BYTES: Final = 16 * 2**20
#: The estimated size of a memo without its arrays, with all that it keeps alive (template, compiled selectors).
_BYTES_PER_MEMO: Final = 8 * 2**10
#: Up to so many nodes that PreFilter names are filtered alone, and nothing is kept: each pod of a DaemonSet names another one.
FEW_NAMED: Final = 8


class TemplateMemos:
    """The memos by template, the least recently used one first."""

    def __init__(
        self,
        table: NodeTable,
        plugins: NodeLocalPlugins,
        pre_filters: Sequence[PreFilterPlugin],
        wide_scores: Sequence[Scorer],
        choosy: Sequence[tuple[str, Callable[[PodTemplate], bool]]],
    ) -> None:
        """``wide_scores``: the score plugins that are not NodeLocal.

        ``choosy``: the names of the plugins of PreFilter and Filter that do not apply to every template, and their ``concerns``.
        """
        self._table: Final = table
        self._plugins: Final = plugins
        self._pre_filters: Final = [(p, p.NAME, isinstance(p, NodeLocal)) for p in pre_filters]
        self._wide_scores: Final = wide_scores
        self._choosy: Final = choosy
        self._kept: Final[dict[PodTemplate, TemplateMemo]] = {}
        self._latest: tuple[PodTemplate | None, TemplateMemo | None] = (None, None)
        #: Bytes of the memos, and of the specs that they keep alive.
        self._memo_bytes = 0
        self._spec_bytes = 0

    def of(self, pod: Pod) -> TemplateMemo:
        """The memo of the pod's template. A new memo runs PreFilter of the NodeLocal plugins."""
        template, (latest, memo) = pod.template, self._latest
        if memo is not None:
            if template is latest:
                return memo
            if not memo.named_nodes:
                self._count(memo)  # it has grown since it was asked for
        memo = self._kept.pop(template, None)
        if memo is None:
            memo = self._new(pod)
            if (
                memo.named_nodes
            ):  # a pod of a DaemonSet: nothing is kept for it, and no other pod is like it
                self._latest = template, memo
                return memo
            self._spec_bytes += template.size
            self._count(memo)
        self._kept[template] = memo
        self._latest = template, memo
        self._drop_oldest()
        return memo

    def _count(self, memo: TemplateMemo) -> None:
        size = _BYTES_PER_MEMO + memo.nbytes
        self._memo_bytes += size - memo.counted
        memo.counted = size

    def _drop_oldest(self) -> None:
        """Drops the least recently used memos, but never the last one, until the others are within the limits."""
        room = _MEMO_BYTES + _MEMO_BYTES_PER_ROW * self._table.size
        while len(self._kept) > 1 and (self._memo_bytes > room or self._spec_bytes > _SPEC_BYTES):
            oldest = next(iter(self._kept))
            self._memo_bytes -= self._kept.pop(oldest).counted
            self._spec_bytes -= oldest.size

    def _new(self, pod: Pod) -> TemplateMemo:
        template = pod.template
        memo = TemplateMemo(self._plugins, self._table, template, self._wide_scores)
        skipped = {name for name, concerns in self._choosy if not concerns(template)}
        for plugin, name, node_local in self._pre_filters:
            if name in skipped:
                continue
            if not node_local:
                memo.pre_filters.append((plugin, None))
                continue
            said = plugin.pre_filter(memo.state, pod)
            if said is SKIP:
                skipped.add(name)
                continue
            status, only = status_and_nodes(said)
            if status.code is Code.Skip:
                skipped.add(name)
            elif only is not None or not status.ok:
                memo.pre_filters.append((plugin, said))
                memo.named_nodes = only is not None and len(only) <= FEW_NAMED
        memo.ranks = not memo.named_nodes
        memo.skipped = frozenset(skipped)
        memo.active_filters = self._plugins.active_filters(memo.skipped)
        return memo


def status_and_nodes(said: PreFilterResult | Status) -> tuple[Status, frozenset[str] | None]:
    """What PreFilter answered: its status, and the names of the nodes to which it restricts the pod (None: all)."""
    return (said, None) if isinstance(said, Status) else (said.status, said.node_names)
