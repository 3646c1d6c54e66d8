"""Contests of gangs: two to four pod groups, and room for one of them; what is drawn, what users and controllers do.

A gang that has run for a while has done its work, and its pods end. A pod that goes before that is replaced. So each
gang must run in the end.
"""

import itertools
import random
from collections.abc import Iterator
from typing import Any

from tests.histories.apiserver import (
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    ApiServer,
    Manifest,
    Write,
    is_live,
    key_of,
)
from tests.histories.extenders import refuses
from tests.histories.faults import MenuItem, draw_menu
from tests.histories.shape import CONTEST, IN_ORDER, Incident, Shape, configuration
from tests.histories.simulation import Simulation
from tests.histories.workload import HOST, PROFILE, Workload

#: What befalls the processes and the server, the most likely twice.
_INCIDENTS = {
    "process is killed": 0.0,
    "process is killed ": 0.0,
    "API server restarts": 6.0,
    "API server restarts ": 6.0,
    "etcd stops": 5.0,
    "process freezes": 20.0,
    "process is cut off": 20.0,
    "process is told to stop": 0.0,
    "history is compacted": 0.0,
    "extenders restart": 4.0,
    "extenders restart ": 4.0,
    "users act": 0.0,
    "a pod goes": 0.0,
}
_TRIGGERS = ("bind", "bind", "bind", "patch status", "watch", "list", "")
_CALLS = ("extender filter", "extender prioritize", "extender release")
_RELEASE_FAULTS = (
    "reset before",
    "reset after",
    "no answer, not done",
    "no answer, done",
    "500",
    "503",
)
#: A label of all pods.
_APP = "gang"
_EXTENDERS = (
    *((), (), ()),
    *(("rules",), ("ignorable",), ("whole nodes",), ("rules", "whole nodes")),
    *(("releasing",), ("releasing",), ("releasing", "rules")),
)


def draw_contest(seed: int) -> Shape:
    """The frame of a contest."""
    rng = random.Random(f"contest {seed}")
    elects = rng.random() < 0.4
    extenders = rng.choice(_EXTENDERS)
    if random.Random(f"in order {seed}").random() < 0.15:
        extenders = (IN_ORDER,)
    in_order = extenders == (IN_ORDER,)
    quiet_at = rng.choice((8.0, 12.0, 20.0))
    triggers = (*_TRIGGERS, *(_CALLS if extenders else ()))
    incidents = []
    possible = [name for name in _INCIDENTS if extenders or not name.startswith("extenders")]
    for name in rng.choices(possible, k=rng.choice((0, 1, 1, 2, 3, 4))):
        at = rng.random() * quiet_at
        seconds = min(_INCIDENTS[name] * rng.random(), quiet_at - at)
        when_done = rng.random() < 0.5
        incidents.append(Incident(name.strip(), at, seconds, rng.choice(triggers), when_done))
    menu = draw_menu(rng, calls=bool(extenders), choices=(0, 0, 1, 1, 2))
    if "releasing" in extenders and rng.random() < 0.3:
        fault = rng.choice(_RELEASE_FAULTS)
        menu.append(MenuItem(fault, frozenset({"extender release"}), rng.choice((0.2, 0.7))))
    return Shape(
        seed=seed,
        theme=CONTEST,
        configuration=configuration(elects, False, False, extenders),
        elects=elects,
        replicas=2 if elects and rng.random() < 0.3 else 1,
        volumes=False,
        devices=False,
        extenders=extenders,
        extender_latency=rng.choice((0.0, 0.05, 1.0)),
        nodes=rng.randint(1, 4),
        pods=0,
        urgent=rng.choice((0.0, 0.0, 0.3)) or (0.6 if in_order else 0.0),
        requests=(),
        places=("32",),
        quiet_at=quiet_at,
        cost=rng.choice((0.0, 0.00002, 0.00002, 0.003)),
        menu=menu,
        incidents=incidents,
        gangs=rng.choice((2, 2, 3, 4)),
    )


class _Gang:
    """One group: how many pods it has and needs, and how many have been made."""

    def __init__(self, name: str, size: int, minimum: int | None, spec: Manifest) -> None:
        self.name = name
        self.size = size
        self.minimum = minimum
        self.spec = spec
        self.made = 0
        self.begun = False
        self.ending = False
        self.done = False


class Contest(Workload):
    """Lets gangs come, work and end."""

    def __init__(self, simulation: Simulation, server: ApiServer, shape: Shape, tell: Any) -> None:
        super().__init__(simulation, server, shape, tell)
        self._gangs: dict[str, _Gang] = {}

    def begin(self) -> None:
        """See Workload."""
        rng, server = self._rng, self._server
        for namespace in ("default", "kube-system"):
            server.create(NAMESPACES, {"metadata": {"name": namespace}})
        for number in range(self._shape.gangs):
            gang = self._draw(f"g{number}")
            self._gangs[gang.name] = gang
        largest = max(gang.size for gang in self._gangs.values())
        rooms = [largest // self._shape.nodes] * self._shape.nodes
        for number in range(largest - sum(rooms)):
            rooms[number] += 1
        for name, room in zip(self._names_that_extenders_leave(), rooms, strict=False):
            self._add_node_of(name, max(room, 1))
        latest = rng.choice((0.0, 1.0, 0.6 * self._shape.quiet_at))
        if IN_ORDER in self._shape.extenders:
            for _ in range(12):
                self._simulation.at(rng.random() * self._shape.quiet_at / 2, self._single)
        for gang in self._gangs.values():
            self._simulation.at(rng.random() * latest, self._come, gang)
        for _ in range(rng.randint(0, 4)):
            self._simulation.at(rng.random() * self._shape.quiet_at, self.act)

    def act(self) -> None:
        """See Workload."""
        self._rng.choice((self._delete_pod, self._delete_pod, self._lose_node, self._single))()

    def act_unseen(self) -> None:
        """See Workload."""
        self.act()

    def wrote(self, write: Write) -> None:
        """See Workload; gangs that run end some time later, and lost pods are replaced."""
        super().wrote(write)
        if write.resource != PODS:
            return
        pod = write.new or write.old or {}
        gang = self._gangs.get(pod["spec"].get("schedulingGroup", {}).get("podGroupName"))
        if gang is not None:
            self._simulation.after(self._rng.uniform(0.1, 1.0), self._reconcile, gang)
            if write.new is not None and "nominatedNodeName" in write.new.get("status", {}):
                self._nominated(gang, write.key)

    def unsettled(self) -> list[str]:
        """The gangs that have not run."""
        return [f"{gang.name} has not run" for gang in self._gangs.values() if not gang.done]

    # ------------------------------------------------------------ gangs

    def _draw(self, name: str) -> _Gang:
        rng = self._rng
        size = rng.randint(2, 7)
        minimum = None if rng.random() < 0.1 else max(1, size - rng.choice((0, 0, 0, 1, 2)))
        spec: Manifest = {
            "schedulerName": PROFILE,
            "schedulingGroup": {"podGroupName": name},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        }
        if rng.random() < self._shape.urgent:
            spec["priority"] = rng.choice((10, 1000))
        return _Gang(name, size, minimum, spec)

    def _names_that_extenders_leave(self) -> Iterator[str]:
        """Names of nodes that none of the extenders refuses."""
        for number in itertools.count():
            name = f"n{number}"
            sort = [each for each in self._shape.extenders if each != "releasing"]
            if not any(refuses(extender, _APP, name) for extender in sort):
                yield name

    def _add_node_of(self, name: str, room: int) -> None:
        amounts = {"cpu": str(room), "memory": "64Gi", "pods": "32"}
        self._server.create(
            NODES,
            {
                "metadata": {"name": name, "labels": {HOST: name, "room": str(room)}},
                "spec": {},
                "status": {"allocatable": amounts, "capacity": amounts},
            },
        )

    def _come(self, gang: _Gang) -> None:
        """The group and its pods come in any order, at once or one after another."""
        rng = self._rng
        longest = rng.choice((0.0, 0.3, 3.0))
        self._simulation.after(rng.choice((0.0, 0.0, longest)), self._make_group, gang)
        gang.begun = True
        for _ in range(gang.size):
            self._simulation.after(rng.random() * longest, self._make_pod, gang)

    def _make_group(self, gang: _Gang) -> None:
        policy = {"basic": {}} if gang.minimum is None else {"gang": {"minCount": gang.minimum}}
        needs = "basic" if gang.minimum is None else f"{gang.minimum} of {gang.size}"
        self._tell("user", f"creates group {gang.name} ({needs})")
        spec = {"schedulingPolicy": policy}
        metadata = {"name": gang.name, "namespace": "default"}
        self._server.create(POD_GROUPS, {"metadata": metadata, "spec": spec})

    def _make_pod(self, gang: _Gang) -> None:
        name = f"{gang.name}-{gang.made}"
        gang.made += 1
        self._tell("user", f"creates {name}")
        metadata = {"name": name, "namespace": "default", "labels": {"app": _APP}}
        status = {"phase": "Pending"}
        self._server.create(PODS, {"metadata": metadata, "spec": gang.spec, "status": status})

    def _nominated(self, gang: _Gang, key: str) -> None:
        """A pod that waits for victims goes, or its PodGroup does and comes back later."""
        pause, chance = self._rng.uniform(0.0, 2.0), self._rng.random()
        if chance < 0.2:
            self._simulation.after(pause, self._remove_if_there, key)
        elif chance < 0.4:
            self._simulation.after(pause, self._remake_group, gang)

    def _remake_group(self, gang: _Gang) -> None:
        group = self._server.get(POD_GROUPS, f"default/{gang.name}")
        if group is not None:
            self._tell("user", f"deletes group {gang.name}")
            self._server.remove(POD_GROUPS, key_of(group))
            self._simulation.after(self._rng.uniform(0.0, 6.0), self._make_group, gang)

    def _members(self, gang: _Gang) -> list[Manifest]:
        group = {"podGroupName": gang.name}
        return [
            pod
            for pod in self._server.all(PODS)
            if pod["spec"].get("schedulingGroup") == group and is_live(pod)
        ]

    def _reconcile(self, gang: _Gang) -> None:
        """Its controller: replaces pods that have gone, and sees when it runs."""
        if gang.done or gang.made < gang.size:
            return
        members = self._members(gang)
        for _ in range(gang.size - len(members)):
            self._make_pod(gang)
        if self._runs(gang) and not gang.ending:
            gang.ending = True
            self._simulation.after(self._rng.uniform(1.0, 4.0), self._end_gang, gang)

    def _runs(self, gang: _Gang) -> bool:
        running = [p for p in self._members(gang) if p["status"].get("phase") == "Running"]
        return len(running) >= (gang.minimum or 1)

    def _end_gang(self, gang: _Gang) -> None:
        gang.ending = False
        if not self._runs(gang):
            return
        gang.done = True
        self._tell("user", f"{gang.name} has done its work")
        for pod in self._members(gang):
            if pod["spec"].get("nodeName"):
                self._server.merge(PODS, key_of(pod), {"status": {"phase": "Succeeded"}})
            else:
                self._server.remove(PODS, key_of(pod))

    # ------------------------------------------------------------ others

    def _single(self) -> None:
        """A pod without a group, which ends soon."""
        self._number += 1
        spec = {"schedulerName": PROFILE, "containers": [{"name": "c"}]}
        spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        metadata = {"name": f"p{self._number}", "namespace": "default", "labels": {"app": _APP}}
        self._tell("user", f"creates p{self._number}")
        self._server.create(
            PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}
        )
        pause = self._rng.uniform(1.0, 10.0)
        self._simulation.after(pause, self._remove_if_there, f"default/p{self._number}")

    def _remove_if_there(self, key: str) -> None:
        if self._server.get(PODS, key) is not None:
            self._server.remove(PODS, key)

    def _lose_node(self) -> None:
        """A node goes and comes back."""
        node = self._some(NODES)
        if node is None:
            return
        name = node["metadata"]["name"]
        self._tell("admin", f"removes node {name}")
        self._server.remove(NODES, name)
        room = int(node["metadata"]["labels"]["room"])
        self._simulation.after(self._rng.uniform(0.0, 4.0), self._return, name, room)
        self._simulation.after(self._rng.uniform(0.5, 5.0), self._collect, name)

    def _return(self, name: str, room: int) -> None:
        if self._server.get(NODES, name) is None:
            self._tell("admin", f"makes node {name} again")
            self._add_node_of(name, room)
