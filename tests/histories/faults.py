"""What may go wrong with a request or a watch line, by name; and how often in one history.

The names are those of stories and tables. A request is of one of the kinds in KINDS; a fault says which kinds it can
hit, so that the model server and what stands before it do nothing that real ones never do (an API server does not say
of a pod that exists that it does not).
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

#: Connections being made, by what they are for.
CONNECTS = ("connect", "connect for events", "connect for the lease", "connect to an extender")
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
#: A connection that was kept at rest.
AT_REST = "connection at rest"
#: Calls of extenders.
CALLS = ("extender filter", "extender prioritize", "extender preempt", "extender bind")
#: What extenders answer that makes no sense, by name.
NONSENSE = {
    "empty answer": b"",
    "null": b"null",
    "empty object": b"{}",
    "empty list": b"[]",
    "strange nodes": b'{"NodeNames":["nowhere"]}',
    "strange scores": b'[{"Host":"nowhere","Score":9223372036854775807}]',
    "an error": b'{"Error":"caf\\ud83d"}',
    "wrong types": b'{"NodeNames":{"a":1},"Error":[]}',
    "deep object": b'{"a":' * 3000,
    "a page of HTML for an answer": b"<html><body><h1>Bad gateway</h1></body></html>\n",
    "error, done": b'{"Error":"failed"}',
}

_ALL = frozenset((*KINDS, *CALLS))
_CALLS = frozenset(CALLS)
_BIND = frozenset({"extender bind"})
_WRITES = frozenset(WRITES)
_COLLECTIONS = frozenset({"list", "watch"})
_OBJECTS = frozenset({"bind", "patch status", "delete pod", "patch volume", "update lease"})

#: Faults of requests, and the kinds of requests that they can hit.
REQUEST_FAULTS: Mapping[str, frozenset[str]] = {
    "no connection": frozenset(CONNECTS),
    "slow connection": frozenset(CONNECTS),
    "closed": frozenset({AT_REST}),
    "slow request": _ALL,
    "slow answer": _ALL,
    "reset before": _ALL,
    "reset after": _ALL,
    "no answer, not done": _ALL,
    "no answer, done": _ALL,
    "reset, done later": _WRITES | _CALLS,
    "done twice": _WRITES | _CALLS,
    "done twice, second answer": _WRITES | _CALLS,
    "half an answer": _ALL,
    "answer breaks off": _ALL,
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
    "500, done": _WRITES | _CALLS,
    "502 of a proxy, done": _WRITES | _CALLS,
    "504, done": _WRITES | _CALLS,
    **dict.fromkeys(NONSENSE, _CALLS - _BIND),
    "a page of HTML for an answer": frozenset(READS) | _CALLS,
    "error, done": _BIND,
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


def draw_menu(rng: random.Random, *, calls: bool, choices: Sequence[int]) -> list[MenuItem]:
    """Some kinds of faults, most of them for some kinds of requests only.

    ``calls``: also those of extenders; ``choices``: how many there may be, each as likely.
    """
    menu = []
    faults = [fault for fault, kinds in REQUEST_FAULTS.items() if calls or kinds - _CALLS]
    for _ in range(rng.choice(choices)):
        if rng.random() < 0.4:
            fault = rng.choice(LINE_FAULTS)
            menu.append(MenuItem(fault, frozenset({LINE}), rng.choice((0.02, 0.05, 0.15, 0.4))))
            continue
        fault = rng.choice(faults)
        possible = REQUEST_FAULTS[fault] if calls else REQUEST_FAULTS[fault] - _CALLS
        if rng.random() < 0.3:
            menu.append(MenuItem(fault, possible, rng.choice((0.01, 0.05, 0.2))))
        else:
            few = frozenset(rng.sample(sorted(possible), min(len(possible), rng.randint(1, 3))))
            menu.append(MenuItem(fault, few, rng.choice((0.1, 0.3, 0.7))))
    return menu


def draw_doubts(rng: random.Random) -> list[MenuItem]:
    """Faults that leave it open whether a pod is bound, others of the lookup that is to tell, and a watch that tells
    late."""
    done = [fault for fault in REQUEST_FAULTS if "done" in fault and "not done" not in fault]
    lost = rng.choice(("reset after", "reset, done later", "reset, done later", rng.choice(done)))
    lookups = [fault for fault, kinds in REQUEST_FAULTS.items() if "lookup" in kinds]
    refused = rng.choice(("401", "403", "404 of a proxy", rng.choice(lookups)))
    binds = REQUEST_FAULTS[lost] & {"bind", "extender bind"}
    menu = [MenuItem(lost, binds, rng.choice((0.4, 0.95)))]
    if rng.random() < 0.6:
        menu.append(MenuItem(refused, frozenset({"lookup"}), rng.choice((0.5, 0.9))))
    if rng.random() < 0.6:
        late = rng.choice(("slow line", "silence", "cut"))
        menu.append(MenuItem(late, frozenset({LINE}), rng.choice((0.15, 0.4))))
    return menu


def draw_delays(rng: random.Random) -> list[MenuItem]:
    """Faults that put time between the decision to send a request and its leaving, or its answer."""
    menu = []
    if rng.random() < 0.7:
        menu.append(MenuItem("closed", frozenset({AT_REST}), 0.8))
        some = frozenset(rng.sample(CONNECTS, rng.randint(1, 3)))
        menu.append(MenuItem("slow connection", some, rng.choice((0.3, 0.8))))
    if rng.random() < 0.5:
        slow = rng.choice(("slow answer", "slow request"))
        menu.append(MenuItem(slow, frozenset({"update lease"}), rng.choice((0.2, 0.6))))
    return menu
