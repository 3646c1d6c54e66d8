"""A sample extender with the group verb: each pod group gets a block of nodes of its own.

A block is a set of nodes with a fast network between them. A file says which node is in which block::

    {"node-1": "block-a", "node-2": "block-a", "node-3": "block-b"}

A group is asked about with one call. It gets the free block with the most candidates, and all of its pods have to run
there. A block is free again when no pod of the group is left: when the scheduler gives up the placements (``release``),
or after an hour in which it was not asked about the group. Pods without a group are not asked about. Run it with

    python -m aiokube_scheduler.extenders.python.blocks --port 8888 blocks.json

and configure it with the verbs ``group`` and ``release`` (docs/extenders.md, "The group verb").
"""

import argparse
import json
import time  # noqa: TID251 - a program of its own
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from extenders.kit import GroupAnswer, GroupRequest, ReleaseRequest, make_app, run

#: Seconds after which a block is free that was not asked about.
KEPT: Final = 3600.0
_OCCUPIED: Final = "no block is free for the group"
_OUTSIDE: Final = "node is not in the group's block {}"


class Blocks:
    """Which group has which block."""

    def __init__(
        self, block_of: Mapping[str, str], now: Callable[[], float] = time.monotonic
    ) -> None:
        """``block_of``: the block of each node, by name; ``now``: in seconds."""
        self._block_of: Final = block_of
        self._now: Final = now
        #: The block of a group, the pods that hold it, and when it was last asked about.
        self._held: Final[dict[tuple[str, str], tuple[str, set[str], float]]] = {}

    def group(self, request: GroupRequest) -> list[GroupAnswer]:
        """Allows the nodes of one block, the same for all pods of the group."""
        now = self._now()
        for key, (_, _, asked) in list(self._held.items()):
            if now - asked > KEPT:
                del self._held[key]
        key = request.namespace, request.name
        held = self._held.get(key)
        block, uids = held[:2] if held else (self._free(request), set())
        if block is None:
            names = dict.fromkeys((n for each in request.members for n in each.names), _OCCUPIED)
            return [GroupAnswer(request.pods, [], names)]
        uids |= {pod.metadata.uid for pod in request.pods}
        self._held[key] = block, uids, now
        return [
            GroupAnswer(
                each.pods,
                unresolvable={
                    name: _OUTSIDE.format(block)
                    for name in each.names
                    if self._block_of.get(name) != block
                },
            )
            for each in request.members
        ]

    def release(self, request: ReleaseRequest) -> None:
        """The pods do not run in the block of their group."""
        gone = {placement.pod_uid for placement in request.placements}
        for key, (_, uids, _) in list(self._held.items()):
            uids.difference_update(gone)
            if not uids:
                del self._held[key]

    def _free(self, request: GroupRequest) -> str | None:
        """The free block with the most candidates of all pods; None if there is none."""
        taken = {block for block, _, _ in self._held.values()}
        candidates = set.intersection(*(set(each.names) for each in request.members))
        sizes = Counter(self._block_of[name] for name in candidates if name in self._block_of)
        return max(
            (block for block in sizes if block not in taken),
            key=lambda block: (sizes[block], block),
            default=None,
        )


def application(block_of: Mapping[str, str]) -> web.Application:
    """The web application."""
    blocks = Blocks(block_of)
    return make_app(group=blocks.group, release=blocks.release)


def main() -> None:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("blocks", type=Path, help="the file that says which node is in which block")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8888)
    given = parser.parse_args()
    block_of = json.loads(given.blocks.read_text(encoding="utf-8"))
    run(application(block_of), host=given.host, port=given.port)


if __name__ == "__main__":
    main()
