"""VolumeBinding: setting volumes aside, writing them, waiting for them. Time passes only in Effects.sleep."""

import asyncio

import msgspec
import pytest

from app.framework.interface import CycleState
from app.model.objects import AWSElasticBlockStore
from app.model.status import SKIP, SUCCESS, Code, SchedulingError
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.plugins.args import VolumeBindingArgs
from app.plugins.volume_binding import VolumeBinding
from tests.core.framework.coroutines import finish
from tests.core.plugins.volume_world import (
    COMPLETED,
    EBS,
    SELECTED,
    ZONE,
    Bench,
    make_claim,
    make_class,
    make_csi_node,
    make_node,
    make_pod_with,
    make_volume,
    within,
)

BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


class Suspend:
    """Something to wait for that never comes."""

    def __await__(self):
        yield


class FakeEffects:
    """An API server and a clock.

    ``at``: what happens once so many seconds have passed. ``refuse``: names of objects whose update fails.
    """

    def __init__(self, bench, *, refuse=(), stall=False):
        self.bench = bench
        self.refuse = set(refuse)
        self.stall = stall
        self.time = 1000.0
        self.at = {}
        self.written = []

    def now(self):
        return self.time

    async def sleep(self, seconds):
        if self.stall:
            await Suspend()
        self.time += seconds
        happening = self.at.pop(self.time - 1000.0, None)
        if happening is not None:
            happening()

    async def update_volume(self, volume, changes):
        self._update(volume, changes)

    async def update_claim(self, claim, changes):
        self._update(claim, changes)

    def _update(self, obj, changes):
        stored = self.bench.cluster.lister(type(obj)).get(obj.name, obj.namespace)
        if obj.name in self.refuse or stored.resource_version != obj.resource_version:
            raise SchedulingError(f'Operation cannot be fulfilled on "{obj.name}"')
        self.written.append((obj.name, changes))

    def deliver(self):
        """The watch brings what was written."""
        for name, changes in self.written:
            for kind, namespace in ((PersistentVolume, ""), (PersistentVolumeClaim, "ns")):
                stored = self.bench.cluster.lister(kind).get(name, namespace)
                if stored is not None:
                    self.bench.put(patched(stored, changes))


def patched(obj, changes):
    """The object after a merge patch, one version on."""

    def merge(base, patch):
        for key, value in patch.items():
            base[key] = merge(base.get(key, {}), value) if isinstance(value, dict) else value
        return base

    plain = merge(msgspec.to_builtins(obj), changes)
    plain["metadata"]["resourceVersion"] = str(int(obj.resource_version) + 1)
    return msgspec.convert(plain, type(obj))


class Binding:
    """A pod on its way to node ``a``: one claim that a volume exists for, one that is to be made."""

    def __init__(self, *names, bench=None, timeout=600, **fields):
        self.bench = bench or Bench(
            make_node("a", zone="z1"), make_node("b", zone="z2"),
            make_class("local", "kubernetes.io/no-provisioner"), make_class("dyn", "csi.a"),
            make_claim("static", storage_class="local", version="5"),
            make_claim("dynamic", storage_class="dyn", version="7", annotations={"x": "y"}),
            make_volume("pv", storage_class="local", version="3", affinity=within(ZONE, "z1")),
        )  # fmt: skip
        self.pod = make_pod_with(*(names or ("static", "dynamic")), **fields)
        self.plugin = VolumeBinding(VolumeBindingArgs(timeout), self.bench.handle)
        self.state = CycleState()
        self.effects = FakeEffects(self.bench)

    def __getattr__(self, name):
        """Claims, volumes and their caches of the cluster."""
        return getattr(self.bench.cluster.assumed, name)

    def reserve(self, node="a"):
        assert self.plugin.pre_filter(self.state, self.pod) in (SUCCESS, SKIP)
        status = self.plugin.reserve(self.state, self.pod, node)
        if status.ok and self.pod.uid not in self.bench.table.pods[self.bench.table.row_of[node]]:
            self.bench.put(self.pod.on(node))
        return status

    def flight(self, node="a"):
        return self.plugin.pre_bind_pre_flight(self.state, self.pod, node)

    def unreserve(self, node="a"):
        self.plugin.unreserve(self.state, self.pod, node)

    def bind(self):
        """PreBind's status and how many seconds it took."""
        status = finish(self.plugin.pre_bind(self.state, self.pod, "a", self.effects))
        return status, self.effects.time - 1000.0

    def fails(self):
        """The text of PreBind's failure, and how many seconds it took."""
        status, seconds = self.bind()
        assert status.code is Code.Error
        return status.message, seconds

    def complete(self, *names, volume="pv-made"):
        """The controller finishes binding claims."""
        for name in names:
            claim = self.bench.cluster.claims.get(name, "ns")
            spec = msgspec.structs.replace(claim.spec, volume_name=volume)
            claim = msgspec.structs.replace(claim, spec=spec)
            self.bench.put(patched(claim, {"metadata": {"annotations": {COMPLETED: "yes"}}}))


def same(cache, obj):
    """Whether the cache shows an object as it is stored."""
    return cache.get(obj.name, obj.namespace) is cache.stored(obj)


# ---------------------------------------------------------------- reserve and unreserve


def test_reserving_assumes_the_volume_and_the_node():
    binding = Binding()
    assert binding.reserve() == SUCCESS
    volume = binding.volumes.get("pv")
    assert volume.spec.claim_ref.uid == "uid-static"
    assert (volume.spec.claim_ref.namespace, volume.spec.claim_ref.name) == ("ns", "static")
    assert volume.annotations == {BOUND_BY_CONTROLLER: "yes"}
    assert binding.claims.get("dynamic", "ns").annotations == {"x": "y", SELECTED: "a"}
    assert binding.bench.cluster.volumes.get("pv").spec.claim_ref is None
    assert binding.flight() == SUCCESS


def test_what_one_pod_has_reserved_no_other_profile_gives_away():
    first = Binding("static")
    assert first.reserve() == SUCCESS
    first.bench.put(make_claim("second", storage_class="local"))
    second = Binding("second", bench=first.bench, uid="u-2")
    status = second.reserve()
    reason = "node(s) didn't find available persistent volumes to bind"
    assert (status.code, status.reasons) == (Code.UnschedulableAndUnresolvable, (reason,))
    first.unreserve()
    assert second.reserve() == SUCCESS


def test_a_claim_that_pods_share_goes_to_the_node_first_chosen():
    first = Binding("dynamic")
    assert first.reserve() == SUCCESS
    second = Binding("dynamic", bench=first.bench, uid="u-2")
    assert second.reserve("b").code is Code.UnschedulableAndUnresolvable
    assert second.reserve("a") == SUCCESS
    second.unreserve()
    assert first.claims.get("dynamic", "ns").annotations[SELECTED] == "a"


def test_a_volume_reserved_for_a_shared_claim_stays_with_the_first_pod():
    first = Binding("static")
    assert first.reserve() == SUCCESS
    second = Binding("static", bench=first.bench, uid="u-2")
    assert second.reserve() == SUCCESS
    assert first.volumes.get("pv").spec.claim_ref.uid == "uid-static"
    second.unreserve()
    assert first.volumes.get("pv").spec.claim_ref.uid == "uid-static"
    first.unreserve()
    assert same(first.volumes, make_volume("pv"))


def test_unreserving_gives_everything_back_and_may_be_repeated():
    binding = Binding()
    binding.reserve()
    binding.unreserve()
    binding.unreserve()
    assert same(binding.volumes, make_volume("pv"))
    assert same(binding.claims, make_claim("dynamic"))
    assert binding.flight() == SKIP


def test_unreserving_what_was_never_reserved():
    binding = Binding()
    binding.unreserve()
    assert binding.plugin.pre_filter(binding.state, binding.pod) == SUCCESS
    binding.unreserve()


def test_the_watch_overrules_what_was_assumed():
    binding = Binding()
    binding.reserve()
    binding.bench.put(make_volume("pv", storage_class="local", version="4", phase="Bound"))
    assert same(binding.volumes, make_volume("pv"))
    binding.unreserve()
    assert same(binding.volumes, make_volume("pv"))


def test_pods_without_claims_and_with_bound_ones_reserve_nothing():
    bench = Bench(
        make_node("a"), make_claim("c", volume="pv", bound=True), make_volume("pv", claim=("ns", "c"))
    )  # fmt: skip
    for names in ((), ("c",)):
        binding = Binding(bench=bench)
        binding.pod = make_pod_with(*names)
        assert binding.reserve() == SUCCESS
        assert binding.flight() == SKIP
        assert binding.bind() == (SUCCESS, 0.0)
        assert not binding.effects.written


def test_objects_that_changed_since_they_were_looked_at_are_out_of_sync():
    binding = Binding("static", "dynamic")
    assert binding.plugin.pre_filter(binding.state, binding.pod) == SUCCESS
    binding.bench.put(make_claim("dynamic", storage_class="dyn", version="8"))
    status = binding.plugin.reserve(binding.state, binding.pod, "a")
    text = '"ns/dynamic" is out of sync (stored: 8, assume: 7)'
    assert (status.code, status.message) == (Code.Error, text)
    assert same(binding.volumes, make_volume("pv"))
    binding.bench.gone(make_claim("dynamic"))
    status = binding.plugin.reserve(binding.state, binding.pod, "a")
    text = 'persistentvolumeclaims "ns/dynamic" not found'
    assert (status.code, status.message) == (Code.Error, text)
    assert +binding.plugin.stage_errors == {"assume": 2}
    assert same(binding.volumes, make_volume("pv"))


def test_a_node_that_will_not_do_is_refused():
    status = Binding().reserve("b")
    reason = "node(s) didn't find available persistent volumes to bind"
    assert (status.code, status.reasons) == (Code.UnschedulableAndUnresolvable, (reason,))
    binding = Binding()
    binding.plugin.pre_filter(binding.state, binding.pod)
    status = binding.plugin.reserve(binding.state, binding.pod, "gone")
    assert (status.code, status.message) == (Code.Error, 'node "gone" not found')


def test_another_node_than_the_one_reserved():
    binding = Binding()
    binding.reserve()
    status = binding.flight("b")
    text = 'no pod volume found for node "b"'
    assert (status.code, status.message) == (Code.Error, text)
    other = finish(binding.plugin.pre_bind(binding.state, binding.pod, "b", binding.effects))
    assert other == status


# ---------------------------------------------------------------- writing


def test_volumes_are_written_first_then_claims():
    binding = Binding()
    binding.reserve()
    binding.effects.at[1.0] = binding.effects.deliver
    binding.effects.at[2.0] = lambda: binding.complete("static", volume="pv")
    binding.effects.at[3.0] = lambda: binding.complete("dynamic", volume="pv")
    assert binding.bind() == (SUCCESS, 3.0)
    assert binding.effects.written == [
        (
            "pv",
            {
                "metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}},
                "spec": {
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "namespace": "ns",
                        "name": "static",
                        "uid": "uid-static",
                        "resourceVersion": "5",
                    }
                },
            },
        ),
        ("dynamic", {"metadata": {"annotations": {SELECTED: "a"}}}),
    ]


def test_a_volume_reserved_by_its_owner_gets_only_the_uid():
    binding = Binding("static")
    reserved = make_volume("pv", storage_class="local", claim=("ns", "static"), claim_uid="")
    binding.bench.put(reserved)
    binding.reserve()
    binding.effects.at[1.0] = lambda: binding.complete("static", volume="pv")
    binding.bind()
    ((_, changes),) = binding.effects.written
    assert set(changes) == {"spec"}
    assert changes["spec"]["claimRef"]["uid"] == "uid-static"


def test_what_is_right_already_is_not_written():
    binding = Binding("static", "dynamic")
    binding.bench.put(make_volume("pv", storage_class="local", claim=("ns", "static")))
    binding.bench.put(make_claim("dynamic", storage_class="dyn", annotations={SELECTED: "a"}))
    binding.reserve()
    binding.effects.at[1.0] = lambda: binding.complete("static", "dynamic", volume="pv")
    assert binding.bind() == (SUCCESS, 1.0)
    assert not binding.effects.written


def test_a_claim_named_twice_is_written_once():
    binding = Binding("dynamic", "dynamic")
    binding.reserve()
    binding.effects.at[1.0] = lambda: (
        binding.effects.deliver(), binding.complete("dynamic", volume="pv")
    )  # fmt: skip
    assert binding.bind() == (SUCCESS, 1.0)
    assert [name for name, _ in binding.effects.written] == ["dynamic"]


def test_a_refused_write_ends_it_and_gives_back_only_what_was_not_written():
    binding = Binding()
    binding.reserve()
    binding.effects.refuse.add("dynamic")
    assert binding.fails() == ('Operation cannot be fulfilled on "dynamic"', 0.0)
    binding.unreserve()
    assert binding.volumes.get("pv").spec.claim_ref.uid == "uid-static"
    assert same(binding.claims, make_claim("dynamic"))
    binding.effects.deliver()
    assert same(binding.volumes, make_volume("pv"))


def test_a_volume_that_changed_meanwhile_is_not_overwritten():
    binding = Binding()
    binding.reserve()
    binding.bench.put(make_volume("pv", storage_class="local", version="4"))
    assert binding.fails() == ('Operation cannot be fulfilled on "pv"', 0.0)
    assert not binding.effects.written


# ---------------------------------------------------------------- waiting


@pytest.mark.parametrize(("timeout", "seconds"), [(600, 600.0), (3, 3.0), (1, 1.0), (0, 0.0)])
def test_waiting_ends_with_the_timeout(timeout, seconds):
    binding = Binding(timeout=timeout)
    binding.reserve()
    binding.effects.at[1.0] = binding.effects.deliver
    assert binding.fails() == ("binding volumes: context deadline exceeded", seconds)


def test_the_last_look_is_before_the_timeout():
    binding = Binding("dynamic", timeout=3)
    binding.reserve()
    binding.effects.at[3.0] = lambda: (
        binding.effects.deliver(), binding.complete("dynamic", volume="pv")
    )  # fmt: skip
    assert binding.fails() == ("binding volumes: context deadline exceeded", 3.0)


def after_one_second(*names, happening, **fields):
    """What PreBind says when something happens after a second, what was written having arrived."""
    binding = Binding(*names, **fields)
    binding.reserve()
    binding.effects.at[1.0] = lambda: (binding.effects.deliver(), happening(binding))
    text, seconds = binding.fails()
    assert seconds == 1.0
    assert text.startswith("binding volumes: ")
    return text.removeprefix("binding volumes: ")


def remove_pod(binding):
    binding.bench.table.remove_pod(binding.pod.on("a"))


def remove_node(binding):
    binding.bench.table.remove_node("a")


def move_node(binding):
    binding.bench.put(make_node("a", zone="z9"))


def test_a_pod_that_is_gone_ends_the_wait():
    text = 'pod does not exist any more: pod "p" not found'
    assert after_one_second(happening=remove_pod) == text


def test_a_node_that_is_gone_ends_the_wait():
    text = 'failed to get node "a": node "a" not found'
    assert after_one_second(happening=remove_node) == text


@pytest.mark.parametrize(
    ("gone", "text"),
    [
        (make_volume("pv"), 'failed to check binding: persistentvolumes "pv" not found'),
        (make_claim("static"), 'failed to check binding: persistentvolumeclaims "ns/static" not found'),
    ],
)  # fmt: skip
def test_a_binding_whose_objects_are_gone_ends_the_wait(gone, text):
    assert after_one_second("static", happening=lambda b: b.bench.gone(gone)) == text


def test_a_claim_reference_that_was_taken_back_ends_the_wait():
    for claim_ref in (None, ("ns", "static")):
        volume = make_volume("pv", version="9", claim=claim_ref, claim_uid="")
        text = after_one_second("static", happening=lambda b, v=volume: b.bench.put(v))
        assert text == 'ClaimRef got reset for pv "pv"'


def test_a_node_that_moved_out_of_reach_ends_the_wait():
    text = 'pv "pv" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'
    assert after_one_second("static", happening=move_node) == text


def test_a_selected_node_that_was_taken_back_ends_the_wait():
    reset = make_claim("dynamic", storage_class="dyn", version="9")
    text = after_one_second("dynamic", happening=lambda b: b.bench.put(reset))
    assert text == 'selectedNode annotation reset for PVC "dynamic"'
    for annotations in ({"x": "y"}, {SELECTED: "b"}):
        failed = make_claim("dynamic", storage_class="dyn", version="9", annotations=annotations)
        text = after_one_second("dynamic", happening=lambda b, f=failed: b.bench.put(f))
        assert text == 'provisioning failed for PVC "dynamic"'


def test_a_claim_to_be_made_that_is_gone_ends_the_wait():
    text = 'failed to check provisioning pvc: persistentvolumeclaims "ns/dynamic" not found'
    happening = lambda b: b.bench.gone(make_claim("dynamic"))  # noqa: E731 - beside its text
    assert after_one_second("dynamic", happening=happening) == text


def test_a_volume_made_out_of_reach_ends_the_wait():
    def happening(binding):
        binding.bench.put(make_volume("pv-made", affinity=within(ZONE, "z2")))
        binding.complete("dynamic")

    text = 'pv "pv-made" node affinity doesn\'t match node "a": no matching NodeSelectorTerms'
    assert after_one_second("dynamic", happening=happening) == text


@pytest.mark.parametrize(
    ("name", "context"), [("static", "failed to translate pv to csi: "), ("dynamic", "")]
)
def test_an_in_tree_volume_that_cannot_be_translated_ends_the_wait(name, context):
    def happening(binding):
        broken = AWSElasticBlockStore("aws://z/x")
        for volume in ("pv", "pv-made"):
            binding.bench.put(make_volume(volume, version="9", claim=("ns", name),
                                          aws_elastic_block_store=broken))  # fmt: skip
        binding.bench.put(make_csi_node("a", EBS))
        binding.complete(name)

    text = (
        f"{context}could not translate pv: failed to translate Kubernetes ID to EBS Volume ID "
        "Invalid format for AWS volume (aws://z/x)"
    )
    assert after_one_second(name, happening=happening) == text


def test_what_was_written_has_to_arrive_before_it_is_looked_at():
    """An old version without the claimRef is no reset: the watch is merely behind."""
    binding = Binding()
    binding.reserve()
    binding.effects.at[4.0] = binding.effects.deliver
    binding.effects.at[5.0] = lambda: binding.complete("static", "dynamic", volume="pv")
    assert binding.bind() == (SUCCESS, 5.0)


def test_a_volume_that_has_not_arrived_yet_is_waited_for():
    binding = Binding("dynamic")
    binding.reserve()
    made = make_volume("pv-made", affinity=within(ZONE, "z1"))
    binding.effects.at[1.0] = lambda: (binding.effects.deliver(), binding.complete("dynamic"))
    binding.effects.at[3.0] = lambda: binding.bench.put(made)
    assert binding.bind() == (SUCCESS, 3.0)


def test_another_pods_assumption_does_not_count_as_bound():
    binding = Binding("dynamic", timeout=2)
    binding.reserve()
    stored = binding.bench.cluster.claims.get("dynamic", "ns")
    annotations = {SELECTED: "a", COMPLETED: "yes"}
    metadata = msgspec.structs.replace(stored.metadata, annotations=annotations)
    spec = msgspec.structs.replace(stored.spec, volume_name="pv")
    binding.claims.assume(msgspec.structs.replace(stored, metadata=metadata, spec=spec))
    assert binding.fails()[0] == "binding volumes: context deadline exceeded"


def test_a_wait_that_is_cancelled_gives_back_nothing_that_was_written():
    binding = Binding()
    binding.reserve()
    binding.effects.stall = True
    waiting = binding.plugin.pre_bind(binding.state, binding.pod, "a", binding.effects)
    waiting.send(None)
    with pytest.raises(asyncio.CancelledError):
        waiting.throw(asyncio.CancelledError)
    binding.unreserve()
    assert binding.volumes.get("pv").spec.claim_ref.uid == "uid-static"
    assert binding.claims.get("dynamic", "ns").annotations[SELECTED] == "a"
