"""Bugs to be planted into the scheduler: each puts back a defect that it had, or one that it might have.

The histories have to find every one of them (test_planted_bugs.py).
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from unittest import mock

import msgspec

from app.extender import transport
from app.extender.chain import ExtenderChain
from app.extender.errors import ExtenderError
from app.extender.limit import Places
from app.kube import client, watch, writer
from app.kube.errors import Forbidden, NotFound, Unauthorized
from app.kube.informer import Store
from app.kube.transport import path_segment
from app.kube.watch_decoder import KindFeed
from app.kube.writer import KubeWriter
from app.model.cluster_event import NODE_ADD
from app.plugins.default_preemption.plugin import DefaultPreemption
from app.plugins.gang_scheduling import GangScheduling
from app.plugins.priority_sort import PrioritySort
from app.plugins.volume_binding.reservation import Waiter
from app.scheduler.binding import Binder
from app.scheduler.election.elector import LeaseElector
from app.scheduler.group_state import GroupState
from app.scheduler.preemption import Evictor
from app.scheduler.releases import Releases
from app.scheduler.reports import Reports
from app.scheduler.serial_extenders import SerialGate
from app.state.devices import DeviceTracker
from app.state.queue.active_queue import InFlight
from app.state.queue.scheduling_queue import SchedulingQueue
from app.state.scheduler_state import SchedulerState

Plant = Callable[[], AbstractContextManager[object]]

BUGS: dict[str, Plant] = {}
#: Those that contests of gangs have to find.
GANG_BUGS: dict[str, Plant] = {}


def bug(
    plant: Callable[[], Iterator[AbstractContextManager[object]]], bugs: dict[str, Plant] = BUGS
) -> Plant:
    """Registers what is to be patched, by the function's name."""

    @contextmanager
    def planted() -> Iterator[None]:
        with ExitStack() as stack:
            for patch in plant():
                stack.enter_context(patch)
            yield

    bugs[plant.__name__.replace("_", " ")] = planted
    return planted


def gang_bug(plant: Callable[[], Iterator[AbstractContextManager[object]]]) -> Plant:
    """As ``bug``, for contests."""
    return bug(plant, GANG_BUGS)


# ---------------------------------------------------------------- those that it had


@bug
def a_refused_lookup_means_not_bound():
    ask = KubeWriter._ask_node

    async def believe(self, namespace, name, uid):
        try:
            return await ask(self, namespace, name, uid)
        except (Unauthorized, Forbidden) as err:
            raise NotFound(str(err)) from err

    yield mock.patch.object(KubeWriter, "_ask_node", believe)


@bug
def any_404_to_a_lookup_means_gone():
    async def read(transport, collection, name):
        return (await transport.request("GET", f"{collection}/{path_segment(name)}")).body

    yield mock.patch.object(writer, "read_object", read)


@bug
def a_watch_line_that_is_no_JSON_is_skipped():  # noqa: N802 - its name in reports
    unreadable = KindFeed._unreadable

    def skip(self, err):
        if err.named is not None:
            yield from unreadable(self, err)

    yield mock.patch.object(KindFeed, "_unreadable", skip)


@bug
def any_404_to_a_list_empties_the_kind():
    yield mock.patch.object(watch, "is_absent", mock.AsyncMock(return_value=True))
    never = property(lambda _self: False, lambda _self, _value: None)
    yield mock.patch.object(KindFeed, "known", never, create=True)


@bug
def status_patches_do_not_say_which_pod_they_mean():
    patch = writer.pod_status_patch

    def nameless(*args, **more):
        body = patch(*args, **more)
        if body is None:
            return None
        return msgspec.json.encode({"status": msgspec.json.decode(body)["status"]})

    yield mock.patch.object(writer, "pod_status_patch", nameless)


@bug
def the_lease_is_looked_at_before_the_connection_is_made():
    once = client._once

    async def early(pool, route, method, data, deadline, progress, check):
        check()
        return await once(pool, route, method, data, deadline, progress, lambda: None)

    yield mock.patch.object(client, "_once", early)


@bug
def extenders_are_called_without_the_lease():
    exchange = transport.exchange

    async def unasked(pool, route, request, max_bytes, _may_call):
        return await exchange(pool, route, request, max_bytes, lambda: True)

    yield mock.patch.object(transport, "exchange", unasked)


# ---------------------------------------------------------------- those that it might have


@bug
def a_binding_without_an_answer_counts_as_failed():
    yield mock.patch.object(writer, "_in_doubt", return_value=False)
    yield mock.patch.object(writer, "BIND_ATTEMPTS", 1)


@bug
def late_effects_of_bindings_are_not_waited_for():
    yield mock.patch.object(writer, "SETTLED", 0.0)


@bug
def what_a_list_does_not_have_is_kept():
    yield mock.patch.object(Store, "retain", return_value=())


@bug
def watches_resume_where_the_last_list_ended():
    read = KindFeed.read

    def forget(self, lines):
        version = self.resource_version
        for event in read(self, lines):
            self.resource_version = version
            yield event

    yield mock.patch.object(KindFeed, "read", forget)


@bug
def new_nodes_wake_nobody():
    move_all = SchedulingQueue.move_all

    def deaf(self, event, *args, **more):
        return 0 if event == NODE_ADD else move_all(self, event, *args, **more)

    yield mock.patch.object(SchedulingQueue, "move_all", deaf)


@bug
def pods_in_flight_miss_what_happens():
    yield mock.patch.object(InFlight, "record")


@bug
def a_failed_binding_keeps_its_place():
    yield mock.patch.object(SchedulerState, "forget", lambda _self, assumed: assumed)


@bug
def an_assumed_pod_takes_no_room():
    assume = SchedulerState.assume

    def weightless(self, pod, node_name):
        assumed = assume(self, pod, node_name)
        self.table.remove_pod(assumed)
        self.table.add_pod(assumed.on("nowhere"))
        return assumed

    yield mock.patch.object(SchedulerState, "assume", weightless)


@bug
def the_lease_is_trusted_from_the_answer_on():
    held = LeaseElector._held

    def late(self, written, _sent):
        return held(self, written, self._clock.monotonic())

    yield mock.patch.object(LeaseElector, "_held", late)


@bug
def a_leader_trusts_itself_until_it_has_failed_to_renew():
    def trust(self):
        return self._leading

    yield mock.patch.object(LeaseElector, "is_leader_now", trust)


@bug
def status_patches_are_not_withdrawn_before_binding():
    yield mock.patch.object(Reports, "withdraw", mock.AsyncMock())


@bug
def pods_are_bound_before_their_volumes():
    yield mock.patch.object(Waiter, "wait_bound", mock.AsyncMock())


@bug
def devices_in_flight_are_free():
    yield mock.patch.object(DeviceTracker, "reserve")


@bug
def pods_are_evicted_whatever_extenders_say():
    async def agree(self, pod, victims, pods_on):
        return dict(victims)

    yield mock.patch.object(ExtenderChain, "preempt", agree)


@bug
def pods_are_evicted_from_another_node():
    write = Evictor._write

    async def elsewhere(self, victim, eviction):
        others = [
            pod
            for pod in self._state.pods.values()
            if pod.node_name not in {"", victim.node_name}
            and pod.priority < eviction.preemptor.priority
            and not pod.terminating
        ]
        return await write(self, others[0] if others else victim, eviction)

    yield mock.patch.object(Evictor, "_write", elsewhere)


@bug
def victims_are_looked_for_on_another_node():
    least = DefaultPreemption._least

    def elsewhere(self, findings, candidates):
        _, victims = least(self, findings, candidates)
        return self._table.names[candidates[-1]], victims

    yield mock.patch.object(DefaultPreemption, "_least", elsewhere)


@bug
def evictions_do_not_say_which_pod_they_mean():
    yield mock.patch.object(writer, "delete_body", return_value=b"{}")


@bug
def an_extender_is_called_as_often_as_there_are_pods():
    def take(self, _now):
        self._outside += 1
        self.take()
        return True

    yield mock.patch.object(Places, "left", return_value=1000)
    yield mock.patch.object(Places, "take_outside", take)


@bug
def a_lock_of_an_extender_is_an_error():
    yield mock.patch.object(ExtenderError, "locked", False)


# ---------------------------------------------------------------- those of gangs


@gang_bug
def half_a_gang_is_bound():
    yield mock.patch.object(GroupState, "enough", return_value=True)


@gang_bug
def a_gang_that_does_not_fit_keeps_its_room():
    def keep(self, member, **_again):
        member.assumed = None

    yield mock.patch.object(GroupState, "take_back", keep)


@gang_bug
def a_new_group_wakes_nobody():
    yield mock.patch.object(GangScheduling, "_after_group", return_value=False)


@gang_bug
def bound_pods_do_not_count_for_their_gang():
    def alone(self, more=0):
        placed = sum(member.assumed is not None for member in self) + more
        return self.group is not None and placed >= self.min_count

    yield mock.patch.object(GroupState, "enough", alone)


@gang_bug
def pods_whose_binding_failed_count_for_their_gang():
    forget = SchedulerState._forget

    def counted(self, assumed):
        forget(self, assumed)
        if assumed.uid in self.bindings_failed:
            self.cluster.pod_groups.put(assumed, scheduled=True)

    take_back = Binder._take_back

    async def remembered(self, assumed, status):
        self._state.bindings_failed.add(assumed.pod.uid)
        await take_back(self, assumed, status)

    yield mock.patch.object(SchedulerState, "bindings_failed", set(), create=True)
    yield mock.patch.object(SchedulerState, "_forget", counted)
    yield mock.patch.object(Binder, "_take_back", remembered)


@gang_bug
def a_gang_waits_for_its_own_pods():
    """A pod of a gang of which others are bound is not requeued to be tried before an event."""
    fail = SchedulerState.fail

    def patient(self, queued, now, **more):
        if self.cluster.pod_groups.key_of(queued.pod) is not None:
            queued.unschedulable_plugins = {"GangScheduling"}
        return fail(self, queued, now, **more)

    yield mock.patch.object(SchedulerState, "fail", patient)


@gang_bug
def a_gang_that_is_not_complete_stays_nominated():
    yield mock.patch.object(SchedulerState, "_clear_nominations", return_value=[])


@gang_bug
def extenders_do_not_hear_of_what_was_given_up():
    yield mock.patch.object(Releases, "given_up")


@gang_bug
def priorities_do_not_count_in_the_queue():
    yield mock.patch.object(PrioritySort, "sort_key", lambda _self, queued: queued.timestamp)


@gang_bug
def the_pod_that_came_last_is_tried_first():
    def sort_key(_self, queued):
        return -queued.pod.priority, -queued.timestamp

    yield mock.patch.object(PrioritySort, "sort_key", sort_key)


@gang_bug
def single_pods_overtake_gangs_at_extenders():
    yield mock.patch.object(SerialGate, "_is_held", return_value=False)
