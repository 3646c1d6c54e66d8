"""Who had to go for whom, by the events that the scheduler writes about victims."""

import re
from operator import itemgetter
from typing import Any, Final

from app.sim import EmbeddedCluster
from app.sim.resources.kinds import EVENTS, PODS
from app.sim.store import Change
from app.tools.simulate.result import Preempted
from app.tools.simulate.workloads import controller_of

_NOTE: Final = re.compile(r"Preempted by pod (\S+) on node (\S+?)(?: \(.*\)\.)?$")


class Preemptions:
    """Collects the victims of an embedded cluster, each with the first who wanted its place, in that order.

    Several may want it before it has gone, and their evictions overtake each other: the first is the one with the highest
    priority, as it was tried first, and only among equals the one whose event is the oldest.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster: Final = cluster
        self._pods: Final[dict[str, dict[str, Any]]] = {}
        """By uid: all pods that there have been since."""
        self._told: Final[dict[str, tuple[tuple[int, str], Preempted]]] = {}
        """By the victim's uid: who wants its place, after the priority (negative) and the time of that."""
        store = cluster.api.store
        for record in store[PODS.storage].ordered():
            self._pods[record.value["metadata"]["uid"]] = record.value
        store[PODS.storage].listeners[self._on_pod] = None
        store[EVENTS.storage].listeners[self._on_event] = None

    @property
    def found(self) -> list[Preempted]:
        """Who had to go."""
        return [told for _, told in sorted(self._told.values(), key=itemgetter(0))]

    def _on_pod(self, change: Change) -> None:
        pod = change.record.value
        self._pods[pod["metadata"]["uid"]] = pod

    def _on_event(self, change: Change) -> None:
        event = change.record.value
        if change.type != "ADDED" or event.get("reason") != "Preempted":
            return
        note = _NOTE.match(str(event.get("note") or event.get("message", "")))
        regarding = event.get("regarding") or event.get("involvedObject") or {}
        victim = self._pods.get(regarding.get("uid", ""))
        if note is None or victim is None:
            return
        by = self._pods.get(note[1])
        priority = 0 if by is None else by["spec"].get("priority", 0)
        rank = (-priority, str(event.get("eventTime") or event["metadata"]["creationTimestamp"]))
        known = self._told.get(regarding["uid"])
        if known is not None and known[0] <= rank:
            return
        owner = controller_of(victim)
        self._told[regarding["uid"]] = (
            rank,
            Preempted(
                pod=_key(victim),
                owner="" if owner is None else f"{owner[0]} {owner[1]}/{owner[2]}",
                priority=victim["spec"].get("priority", 0),
                node=note[2],
                by=note[1] if by is None else _key(by),
            ),
        )


def _key(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
