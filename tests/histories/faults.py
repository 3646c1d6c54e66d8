"""What may go wrong with a request or a watch line, by name; and how often in one history.

The names are those of stories and tables. A request is of one of the kinds in KINDS; a fault says which kinds it can hit, so that
the model server and what stands before it do nothing that real ones never do (an API server does not say of a pod that exists
that it does not).
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: Connections being made, by what they are for.
CONNECTS = ("connect", "connect for events", "connect for the lease")
#: Kinds of requests to the API server.
READS = ("list", "watch", "lookup", "get lease", "get claim", "discovery")
WRITES = (
    "bind",
    "patch status",
    "delete pod",
    "patch volume",
    "create lease",
    "update lease",
    "event",
    "lease event",
)
KINDS = (*READS, *WRITES)
LINE = "watch line"

_ALL = frozenset(KINDS)
_WRITES = frozenset(WRITES)
_COLLECTIONS = frozenset({"list", "watch"})
_OBJECTS = frozenset({"bind", "patch status", "delete pod", "patch volume", "update lease"})

#: Faults of requests, and the kinds of requests that they can hit.
REQUEST_FAULTS: Mapping[str, frozenset[str]] = {
    "no connection": frozenset(CONNECTS),
    "slow connection": frozenset(CONNECTS),
    "slow request": _ALL,
    "slow answer": _ALL,
    "reset before": _ALL,
    "reset after": _ALL,
    "no answer, not done": _ALL,
    "no answer, done": _ALL,
    "reset, done later": _WRITES,
    "done twice": _WRITES,
    "done twice, second answer": _WRITES,
    "half an answer": _ALL,
    "answer breaks off": _ALL,
    "a page of HTML for an answer": frozenset(READS),
    "401": _ALL,
    "403": _ALL,
    "404": _COLLECTIONS,
    "404 of a proxy": _ALL,
    "409": _OBJECTS,
    "410": _COLLECTIONS,
    "422": frozenset({"bind", "patch status", "event"}),
    "429": _ALL,
    "500": _ALL,
    "502 of a proxy": _ALL,
    "503": _ALL,
    "504": _ALL,
    "500, done": _WRITES,
    "502 of a proxy, done": _WRITES,
    "504, done": _WRITES,
}

#: Faults of watches, each at some line.
LINE_FAULTS = (
    "cut",
    "cut in a line",
    "ended",
    "garbage line",
    "HTML line",
    "half a line",
    "silence",
    "slow line",
    "line in pieces",
    "line twice",
    "ERROR 410",
    "ERROR 500",
    "ERROR 429",
)


class MenuItem(NamedTuple):
    """One kind of fault of a history: ``chance`` for each request of these kinds."""

    fault: str
    kinds: frozenset[str]
    chance: float


class Faults:
    """Says of each request and line what goes wrong with it, and counts it."""

    def __init__(self, menu: Sequence[MenuItem], rng: random.Random) -> None:
        self.menu = menu
        self.rng = rng
        #: Nothing fails any more.
        self.over = False
        #: (kind of request, fault) -> how often.
        self.counts: Counter[tuple[str, str]] = Counter()

    def strike(self, kind: str) -> str:
        """The fault that hits a request of this kind, or a line; empty for none."""
        if self.over:
            return ""
        for item in self.menu:
            if kind in item.kinds and self.rng.random() < item.chance:
                return item.fault
        return ""


def draw_menu(rng: random.Random) -> list[MenuItem]:
    """Some kinds of faults, most of them for some kinds of requests only."""
    menu: list[MenuItem] = []
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 4))):
        if rng.random() < 0.4:
            fault = rng.choice(LINE_FAULTS)
            menu.append(MenuItem(fault, frozenset({LINE}), rng.choice((0.02, 0.05, 0.15, 0.4))))
            continue
        fault = rng.choice(list(REQUEST_FAULTS))
        possible = REQUEST_FAULTS[fault]
        if rng.random() < 0.3:
            menu.append(MenuItem(fault, possible, rng.choice((0.01, 0.05, 0.2))))
        else:
            few = frozenset(rng.sample(sorted(possible), min(len(possible), rng.randint(1, 3))))
            menu.append(MenuItem(fault, few, rng.choice((0.1, 0.3, 0.7))))
    return menu
