"""Keeps the memo of each template of a profile, within a limit of memory."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from app.framework.classes import is_large
from app.framework.interface import AnyPlugin, NodeLocal, Plugin, PreFilterResult
from app.framework.memo import NodeLocalMemo, NodeLocalPlugins, TemplateMemo
from app.framework.profile import Scorer
from app.model.pod import Pod, PodTemplate
from app.model.status import Code, Status

#: The memory limit for the memos of a profile, and what each row adds to it; beyond it the least recently used ones are
#: dropped. With 100,000 nodes this is room for the totals of a thousand templates.
_MEMO_BYTES: Final = 24 * 2**20
_MEMO_BYTES_PER_ROW: Final = 2500
#: The limit for the JSON size of the pod specs that these memos keep alive.
_SPEC_BYTES: Final = 16 * 2**20
#: The estimated size of a memo without its arrays, with all that it keeps alive (template, compiled selectors).
_BYTES_PER_MEMO: Final = 8 * 2**10
#: Up to so many nodes that PreFilter names are filtered alone, and nothing is kept: each pod of a DaemonSet names
#: another one.
FEW_NAMED: Final = 8


class TemplateMemos:
    """The memos by template, the least recently used one first."""

    def __init__(
        self,
        plugins: NodeLocalPlugins,
        pre_filters: Sequence[AnyPlugin],
        wide_scores: Sequence[Scorer],
        choosy: Sequence[tuple[Plugin, Callable[[PodTemplate], bool]]],
        *,
        shares: bool,
    ) -> None:
        """``wide_scores``: the score plugins that are not NodeLocal.

        ``choosy``: the plugins of PreFilter and Filter that do not apply to every template, and their ``concerns``.
        ``shares``: whether templates with equal stems share the results of NodeLocal plugins.
        """
        self._plugins: Final = plugins
        self._pre_filters: Final = pre_filters
        self._local_pre_filters: Final = [p for p in pre_filters if isinstance(p, NodeLocal)]
        self._wide_scores: Final = wide_scores
        self._choosy: Final = [(p.NAME, concerns) for p, concerns in choosy]
        self._local_names: Final = {p.NAME for p, _ in choosy if isinstance(p, NodeLocal)}
        self._shares: Final = shares
        self._kept: Final[dict[PodTemplate, TemplateMemo]] = {}
        #: The results of NodeLocal plugins that several templates share, by stem, and the number of these templates.
        self._shared: Final[dict[bytes, NodeLocalMemo]] = {}
        self._users: Final[Counter[bytes]] = Counter()
        self._latest: tuple[PodTemplate | None, TemplateMemo | None] = (None, None)
        #: Bytes of the memos, and of the specs that they keep alive.
        self._memo_bytes = 0
        self._spec_bytes = 0

    def of(self, pod: Pod) -> TemplateMemo:
        """The memo of the pod's template. A new memo may run PreFilter of the NodeLocal plugins."""
        template, (latest, memo) = pod.template, self._latest
        if memo is not None:
            if template is latest:
                return memo
            if not memo.local.named_nodes:
                self._count(memo.local)  # it has grown since it was asked for
        memo = self._kept.pop(template, None)
        if memo is None:
            memo = self._new(pod)
            if memo.local.named_nodes:
                # A pod of a DaemonSet: nothing is kept for it, and no other pod is like it.
                self._latest = template, memo
                return memo
            self._keep(template, memo)
        self._kept[template] = memo
        self._latest = template, memo
        self._drop_oldest()
        return memo

    def _keep(self, template: PodTemplate, memo: TemplateMemo) -> None:
        self._spec_bytes += len(template.text)
        self._memo_bytes += _BYTES_PER_MEMO
        stem = memo.local.stem
        if stem is not None:
            self._shared[stem] = memo.local
            self._users[stem] += 1
        self._count(memo.local)

    def _count(self, local: NodeLocalMemo) -> None:
        size = local.nbytes
        self._memo_bytes += size - local.counted
        local.counted = size

    def _drop_oldest(self) -> None:
        """Drops the least recently used memos, but never the last one, until the others are within the limits."""
        room = _MEMO_BYTES + _MEMO_BYTES_PER_ROW * self._plugins.table.size
        while len(self._kept) > 1 and (self._memo_bytes > room or self._spec_bytes > _SPEC_BYTES):
            oldest = next(iter(self._kept))
            local = self._kept.pop(oldest).local
            self._spec_bytes -= len(oldest.text)
            self._memo_bytes -= _BYTES_PER_MEMO
            stem = local.stem
            if stem is not None:
                self._users[stem] -= 1
                if self._users[stem]:
                    continue
                del self._shared[stem], self._users[stem]
            self._memo_bytes -= local.counted

    def _new(self, pod: Pod) -> TemplateMemo:
        template = pod.template
        unconcerned = frozenset([name for name, concerns in self._choosy if not concerns(template)])
        stem = self._stem_of(template)
        local = None if stem is None else self._shared.get(stem)
        if local is None:
            local = self._new_local(pod, unconcerned & self._local_names, stem)
        return TemplateMemo(
            template,
            local,
            unconcerned=unconcerned,
            pre_filters=self._pre_filters,
            scorers=self._wide_scores,
        )

    def _stem_of(self, template: PodTemplate) -> bytes | None:
        """The key of the results that are shared with other templates; None if there are none.

        With classes of nodes nothing is shared: these depend on what the template says about other pods.
        """
        return template.stem if self._shares and not is_large(self._plugins.table) else None

    def _new_local(
        self, pod: Pod, unconcerned: frozenset[str], stem: bytes | None
    ) -> NodeLocalMemo:
        local = NodeLocalMemo(self._plugins, stem)
        skipped = set(unconcerned)
        for plugin in self._local_pre_filters:
            if plugin.NAME in skipped:
                continue
            result = plugin.pre_filter(local.state, pod)
            status, only = status_and_nodes(result)
            if status.code is Code.Skip:
                skipped.add(plugin.NAME)
            elif only is not None or not status.ok:
                local.pre_filtered[plugin.NAME] = result
                local.named_nodes = only is not None and len(only) <= FEW_NAMED
        local.skipped = frozenset(skipped)
        local.active_filters = self._plugins.active_filters(local.skipped)
        return local


def status_and_nodes(
    result: PreFilterResult | Status,
) -> tuple[Status, frozenset[str] | None]:
    """PreFilter's result: its status, and the names of the nodes to which it restricts the pod (None: all)."""
    return (result, None) if isinstance(result, Status) else (result.status, result.node_names)
