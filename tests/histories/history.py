"""One history: what follows from one seed, from the draw to the verdict."""

import asyncio
import hashlib
import random
from collections import Counter
from typing import NamedTuple

from app.scheduler.options import RunOptions
from tests.histories.apiserver import ApiServer, Write
from tests.histories.checker import Checker
from tests.histories.extenders import SLOTS, Extender
from tests.histories.faults import NONSENSE, Faults
from tests.histories.gangs import Contest
from tests.histories.incidents import Incidents
from tests.histories.network import Network
from tests.histories.replica import ProcessClock, Replica
from tests.histories.shape import PATIENCE, Shape
from tests.histories.simulation import Simulation
from tests.histories.workload import Workload

#: Seconds within which all must be well once nothing fails any more, and for a process that is told to stop.
RECOVERY = 150.0
STOPPING = 45.0


class Outcome(NamedTuple):
    """How a history went."""

    seed: int
    theme: str
    violations: list[str]
    #: (time, who, what), in order.
    story: list[tuple[float, str, str]]
    #: (kind of request, fault) -> how often.
    counts: Counter[tuple[str, str]]
    #: When it was over, in virtual seconds.
    ended_at: float

    @property
    def trace(self) -> str:
        """A digest of all that happened."""
        return hashlib.sha256(repr(self.story).encode()).hexdigest()


class History:
    """One history under way."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.story: list[tuple[float, str, str]] = []
        self.simulation = Simulation()
        self.faults = Faults(shape.menu, random.Random(f"faults {shape.seed}"))
        self.server = ApiServer(self._wrote)
        self.network = Network(self.simulation, self.server, self.faults)
        self.network.quiet_at = shape.quiet_at
        kind = Contest if shape.gangs else Workload
        self.workload = kind(self.simulation, self.server, shape, self.tell)
        self.checker = Checker(self.simulation, self.server, self.tell)
        self._rng = random.Random(f"processes {shape.seed}")
        for name in shape.extenders:
            rng = random.Random(f"extender {name} {shape.seed}")
            extender = Extender(
                name,
                self.server,
                rng,
                self.tell,
                reserves=name in {"reserving", "releasing"},
                slots=None if name == "releasing" else SLOTS,
                preempts=name == "preempts",
                latency=shape.extender_latency,
                patience=PATIENCE.get(name, 0.0),
            )
            self.network.extenders[name.replace(" ", "-")] = extender
            self.checker.extenders.append(extender)
        self._lives = 0
        self._stopping = False
        #: All processes there ever were, and the one that is alive of each replica.
        self._all: list[Replica] = []
        self.replicas: dict[int, Replica] = {}

    def tell(self, who: str, what: str) -> None:
        """Adds to the story."""
        self.story.append((self.simulation.now, who, what))

    def play(self) -> Outcome:
        """Lets it all happen."""
        simulation, shape = self.simulation, self.shape
        try:
            self.workload.begin()
            for number in range(shape.replicas):
                simulation.at(number * self._rng.random(), self._start, number)
            Incidents(self).plan(shape.incidents)
            simulation.at(shape.quiet_at, self._calm)
            simulation.at(1.0, self._look)
            simulation.run()
        finally:
            self._clean_up()
        return Outcome(
            shape.seed,
            shape.theme,
            self.checker.violations,
            self.story,
            self.faults.counts,
            simulation.now,
        )

    def _wrote(self, write: Write) -> None:
        self.workload.wrote(write)
        self.checker.wrote(write)

    # ------------------------------------------------------------ processes

    def _start(self, number: int) -> None:
        """Begins a new life of a replica."""
        if self._stopping:
            return
        rng = self._rng
        self._lives += 1
        clock = ProcessClock(
            self.simulation,
            offset=rng.uniform(1.0, 1000.0),
            rate=1.0 + rng.uniform(-0.0005, 0.0005),
            cost=self.shape.cost,
        )
        name = (
            f"scheduler {number}, life {self._lives}" if self._lives > 1 else f"scheduler {number}"
        )
        self.tell(name, "starts")
        replica = Replica(
            name,
            self.simulation,
            self.network,
            self.checker,
            self.tell,
            self.shape.configuration,
            RunOptions(seed=rng.getrandbits(32), features=self.shape.features),
            clock,
        )
        self.replicas[number] = replica
        self._all.append(replica)
        replica.task.add_done_callback(lambda task: self._exited(number, replica, task))

    def kill(self, replica: Replica) -> None:
        """As by SIGKILL; whoever keeps it running starts it again."""
        replica.kill()
        [number] = [n for n, each in self.replicas.items() if each is replica]
        self.simulation.after(self._rng.uniform(0.2, 2.0), self._start, number)

    def _exited(self, number: int, replica: Replica, task: asyncio.Task[int]) -> None:
        if task.cancelled() or replica.killed:
            return
        if task.exception() is not None:
            self.checker.complains(replica, f"ends with {task.exception()!r}")
        else:
            replica.tell(f"exits with {task.result()}")
            asked = replica.stop.is_set()
            if not (asked if task.result() == 0 else self.shape.elects):
                self.checker.violated(f"{replica.name} exits with {task.result()}")
        if not self._stopping:
            self.simulation.after(self._rng.uniform(0.2, 2.0), self._start, number)

    # ------------------------------------------------------------ looking

    def _calm(self) -> None:
        self.tell("world", "nothing fails from now on")
        self.faults.over = True
        if NONSENSE.keys() & {item.fault for item in self.shape.menu}:
            self.simulation.after(1.0, self.workload.touch_nodes)

    def _look(self) -> None:
        """Once a second: the books; once nothing fails any more: whether all is well."""
        for replica in self.replicas.values():
            if replica.alive:
                self.checker.look_at_books(replica)
        now, quiet_at = self.simulation.now, self.shape.quiet_at
        if now >= quiet_at:
            led = any(each.alive and each.leads for each in self.replicas.values())
            self.checker.look_at_gangs(led=led)
        if self.checker.violations:
            self._stop()
            return
        if now >= quiet_at + 1.0:
            unsettled = self._unsettled()
            if not unsettled:
                self._stop()
                return
            if now >= quiet_at + RECOVERY:
                for text in unsettled:
                    self.checker.violated(f"{RECOVERY:.0f} s after the last fault: {text}")
                self._stop()
                return
        self.simulation.after(1.0, self._look)

    def _unsettled(self) -> list[str]:
        alive = [replica for replica in self.replicas.values() if replica.alive]
        leaders = [replica for replica in alive if replica.leads]
        if len(leaders) != 1 or len(alive) != self.shape.replicas:
            return [f"{len(alive)} processes, {len(leaders)} of which lead"]
        if unsettled := self.workload.unsettled():
            return unsettled
        return [
            text
            for replica in alive
            for text in self.checker.unsettled(replica, leads=replica.leads)
        ] or [text for replica in alive for text in self.checker.leaked_tasks(replica)]

    # ------------------------------------------------------------ the end

    def _stop(self) -> None:
        """Tells all processes to stop, and waits for them."""
        self._stopping = self.faults.over = True
        self.tell("world", "tells all processes to stop")
        for replica in self.replicas.values():
            if replica.alive:
                replica.loop.call_from_world(replica.stop.set)
        self._await_exit(self.simulation.now + STOPPING)

    def _await_exit(self, until: float) -> None:
        alive = [replica for replica in self.replicas.values() if replica.alive]
        if alive and self.simulation.now < until:
            self.simulation.after(0.25, self._await_exit, until)
            return
        for replica in alive:
            self.checker.violated(
                f"{replica.name} has not ended {STOPPING:.0f} s after it was told to"
            )
        self.simulation.finished = True

    def _clean_up(self) -> None:
        """Ends what is left of all processes."""
        for replica in self._all:
            replica.kill()
            self.simulation.end(replica.loop)
