"""Who had to go for whom, by the events that the scheduler writes about victims."""

import re
from operator import itemgetter
from typing import Any, Final

from app.runtime.simulation.answer import Preempted
from app.runtime.simulation.owners import controller_of
from app.sim import EmbeddedCluster
from app.sim.resources.kinds import EVENTS, PODS
from app.sim.store import Change

_NOTE: Final = re.compile(r"Preempted by pod (\S+) on node (\S+?)(?: \(.*\)\.)?$")


class Preemptions:
    """Collects the victims of an embedded cluster, in the order of their eviction, each with the first who wanted its place.

    Events may be written in another order than that in which things happened: their own time counts.
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self._cluster: Final = cluster
        self._pods: Final[dict[str, dict[str, Any]]] = {}
        """By uid: all pods that there have been since."""
        self._told: Final[dict[str, tuple[str, Preempted]]] = {}
        """By the victim's uid: the earliest time at which it is said to have been evicted, and what is said then."""
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
        at = str(event.get("eventTime") or event["metadata"]["creationTimestamp"])
        earlier = self._told.get(regarding["uid"])
        if earlier is not None and earlier[0] <= at:
            return  # somebody else wants it gone, too
        owner = controller_of(victim)
        self._told[regarding["uid"]] = (
            at,
            Preempted(
                pod=_key(victim),
                owner="" if owner is None else f"{owner[0]} {owner[1]}/{owner[2]}",
                priority=victim["spec"].get("priority", 0),
                node=note[2],
                by=_key(self._pods[note[1]]) if note[1] in self._pods else note[1],
            ),
        )


def _key(pod: dict[str, Any]) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
