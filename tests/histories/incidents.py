"""What befalls processes, server and lease at certain times, beside the faults of single requests."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.histories.apiserver import LEASES, Manifest
from tests.histories.network import Tripwire
from tests.histories.replica import Replica
from tests.histories.shape import Incident

if TYPE_CHECKING:
    from tests.histories.history import History

_LEASE = "kube-system/kube-scheduler"


class Incidents:
    """Lets the incidents of a history happen to it."""

    def __init__(self, history: "History") -> None:
        self._history = history
        self._simulation = history.simulation
        self._network = history.network
        self._server = history.server
        self._rng = random.Random(f"incidents {history.shape.seed}")
        self._actions: dict[str, Callable[[float], None]] = {
            "API server restarts": self._restart,
            "etcd stops": self._stop_etcd,
            "extenders restart": self._network.crash_extenders,
            "history is compacted": self._compact,
            "process freezes": self._freeze,
            "process is killed": self._kill,
            "process is told to stop": self._stop,
            "process is cut off": self._cut_off,
            "wall clock jumps": self._jump,
            "users act": self._act,
            "objects change unseen": self._change_unseen,
            "a pod goes": self._remove_pod,
            "lease is deleted": self._delete_lease,
            "lease is emptied": self._empty_lease,
            "lease is taken": self._take_lease,
            "lease is touched": self._touch_lease,
            "lease renewals get stuck": self._stick,
        }

    def plan(self, incidents: list[Incident]) -> None:
        """Puts them into the calendar."""
        for incident in incidents:
            self._simulation.at(
                incident.at, self._arm if incident.trigger else self._happen, incident
            )

    def _arm(self, incident: Incident) -> None:
        tripwire = Tripwire(incident.trigger, incident.when_done, lambda: self._happen(incident))
        self._network.tripwires.append(tripwire)

    def _happen(self, incident: Incident) -> None:
        left = self._history.shape.quiet_at - self._simulation.now
        if left < 0:
            return
        self._history.tell("world", f"{incident.name} ({incident.seconds:.3f} s)")
        self._history.faults.counts[f"incident: {incident.trigger}", incident.name] += 1
        self._actions[incident.name](min(incident.seconds, left))

    # ------------------------------------------------------------ the server

    def _restart(self, seconds: float) -> None:
        """It is away, then it refuses everybody for a while, and what it knew of the past is gone."""
        network, rng = self._network, self._rng
        network.crash(seconds)
        self._server.forget_history()
        refusals = ("401", "403", "403", "404 of a proxy", "429", "500", "502 of a proxy", "503")
        network.refusal = rng.choice(refusals)
        pause = rng.choice((0.0, 0.5, 3.0))
        quiet_at = self._history.shape.quiet_at
        network.refusing_until = min(quiet_at, self._simulation.now + seconds + pause)

    def _change_unseen(self, seconds: float) -> None:
        """Nobody can be reached for a while, in which much happens. What is known of that time is gone afterwards."""
        self._network.crash(seconds)
        for _ in range(self._rng.randint(2, 4)):
            self._simulation.after(seconds * self._rng.random(), self._history.workload.act_unseen)
        self._simulation.after(seconds, self._server.forget_history)

    def _stop_etcd(self, seconds: float) -> None:
        self._network.failing_writes_until = self._simulation.now + seconds

    def _compact(self, _seconds: float) -> None:
        self._server.forget_history()

    # ------------------------------------------------------------ the processes

    def _some_process(self) -> Replica | None:
        """One that is alive, the leader most of the time."""
        alive = [r for r in self._history.replicas.values() if r.alive]
        leaders = [r for r in alive if r.leads]
        if leaders and self._rng.random() < 0.7:
            return leaders[0]
        return self._rng.choice(alive) if alive else None

    def _freeze(self, seconds: float) -> None:
        if (replica := self._some_process()) is not None:
            replica.tell(f"freezes for {seconds:.3f} s")
            replica.loop.freeze(self._simulation.now + seconds)

    def _kill(self, _seconds: float) -> None:
        if (replica := self._some_process()) is not None:
            replica.tell("is killed")
            self._history.kill(replica)

    def _stop(self, _seconds: float) -> None:
        if (replica := self._some_process()) is not None:
            replica.tell("is told to stop")
            replica.loop.call_from_world(replica.stop.set)

    def _cut_off(self, seconds: float) -> None:
        if (replica := self._some_process()) is not None:
            replica.tell(f"is cut off for {seconds:.3f} s")
            replica.cut_off_until = self._simulation.now + seconds

    def _jump(self, seconds: float) -> None:
        if (replica := self._some_process()) is not None:
            replica.clock.jumped = self._rng.choice((-1, 1)) * seconds * self._rng.choice((1, 1000))

    def _act(self, _seconds: float) -> None:
        self._history.workload.act()

    def _remove_pod(self, _seconds: float) -> None:
        self._history.workload.remove_pod()

    # ------------------------------------------------------------ the lease

    def _lease(self) -> Manifest | None:
        return self._server.get(LEASES, _LEASE)

    def _delete_lease(self, _seconds: float) -> None:
        if self._lease() is not None:
            self._server.remove(LEASES, _LEASE)

    def _empty_lease(self, _seconds: float) -> None:
        if self._lease() is not None:
            spec = self._rng.choice(({"holderIdentity": ""}, {"holderIdentity": None}))
            self._server.merge(LEASES, _LEASE, {"spec": spec})

    def _take_lease(self, seconds: float) -> None:
        """A stranger puts its name in, and is never heard of again."""
        if self._lease() is not None:
            spec = {"holderIdentity": "stranger", "leaseDurationSeconds": max(1, int(seconds))}
            self._server.merge(LEASES, _LEASE, {"spec": spec})

    def _stick(self, seconds: float) -> None:
        """The next renewal is answered late, those after it are not."""
        self._network.stuck_until = self._simulation.now + seconds
        self._network.stuck_fault = "slow answer"

    def _touch_lease(self, _seconds: float) -> None:
        """Somebody labels it: the version that its holder knows is no longer the last."""
        if self._lease() is not None:
            labels = {"touched": str(self._rng.random())}
            self._server.merge(LEASES, _LEASE, {"metadata": {"labels": labels}})
