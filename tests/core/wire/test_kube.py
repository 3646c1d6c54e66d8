"""Objects, watch lines and lists of the Kubernetes API."""

import gc
import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.model.devices import ResourceClaim, ResourceSlice
from app.model.objects import Node, PodDisruptionBudget, PodResourceClaimStatus, Service
from app.model.storage import CSINode, PersistentVolume, StorageClass
from app.wire.kube import (
    INITIAL_EVENTS_END,
    ApiStatus,
    DecodeError,
    NodeDecoder,
    PodDecoder,
    decoder_for,
    strip_for_extender,
)
from app.wire.sanitize import is_emptied

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('aé<&"\\\u2028', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab<", max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


def pod(name="web-1", *, node=None, labels=None, volumes=(), status=None, **spec):
    """A pod as an API server writes it; ``spec`` overrides fields of the spec."""
    token = {"name": f"kube-api-access-{name}", "projected": {"sources": []}}
    whole_spec = {
        "volumes": [token, *volumes],
        "containers": [{"name": "c", "image": "web:v1", "resources": {"requests": {"cpu": "1"}}}],
        "schedulerName": "default-scheduler",
        "priority": 7,
        **({"nodeName": node} if node else {}),
        **spec,
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": "12",
            "generation": 3,
            "creationTimestamp": None,
            "labels": labels,
            "managedFields": [{"manager": "m", "fieldsV1": {"f:kind": {}}}],
            "ownerReferences": [
                {"kind": "Job", "name": "other", "uid": "u0"},
                {"kind": "ReplicaSet", "name": "web", "uid": "u1", "controller": True},
            ],
        },
        "spec": whole_spec,
        "status": {"phase": "Pending"} if status is None else status,
    }


def line(obj, kind="ADDED"):
    return json.dumps({"type": kind, "object": obj}, separators=(",", ":")).encode() + b"\n"


def decoded(obj, decoder=None):
    return (decoder or PodDecoder()).decode_line(line(obj))[1]


class TestPod:
    def test_what_is_its_own(self):
        got = decoded(
            pod(
                node="n1",
                labels={"app": "web"},
                status={"phase": "Running", "nominatedNodeName": "n2"},
            )
        )
        assert (got.namespace, got.name, got.uid, got.key) == (
            "shop",
            "web-1",
            "uid-web-1",
            "shop/web-1",
        )
        assert (got.resource_version, got.generation, got.phase) == ("12", 3, "Running")
        assert (got.node_name, got.nominated_node_name, got.labels["app"]) == ("n1", "n2", "web")
        assert got.owner is not None
        assert (got.owner.kind, got.owner.name) == ("ReplicaSet", "web")
        assert got.deletion_timestamp is None
        assert got.priority == 7

    def test_siblings_share_template_and_labels(self):
        decoder = PodDecoder()
        first = decoded(pod("web-1", labels={"a": "1", "b": "2"}), decoder)
        second = decoded(pod("web-2", labels={"b": "2", "a": "1"}, node="n1"), decoder)
        assert first.template is second.template
        assert first.labels is second.labels
        assert list(first.labels.items()) == [("a", "1"), ("b", "2")]
        assert first.owner is second.owner
        assert first.spec.volumes is None

    def test_pods_of_different_pod_groups_share_their_template(self):
        decoder = PodDecoder()
        one, other = (
            decoded(pod(schedulingGroup={"podGroupName": name}), decoder) for name in ("one", "two")
        )
        alone = decoded(pod(), decoder)
        assert one.template is other.template is alone.template
        names = [each.pod_group_name for each in (one, other, alone)]
        assert names == ["one", "two", ""]
        assert one.room().pod_group_name == ""

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param({"priority": 8}, id="priority"),
            pytest.param({"nodeSelector": {"zone": "a"}}, id="selector"),
            pytest.param({"hostNetwork": True}, id="host-network"),
            pytest.param(
                {
                    "containers": [
                        {"name": "c", "image": "web:v1", "resources": {"limits": {"x/y": 1}}}
                    ]
                },
                id="limits",
            ),
            pytest.param(
                {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "d"}}]},
                id="volume",
            ),
        ],
    )
    def test_different_specs_do_not_share(self, other):
        decoder = PodDecoder()
        first = decoded(pod(), decoder)
        second = decoded(pod(**other), decoder)
        assert first.template is not second.template

    def test_the_order_of_map_keys_does_not_divide_a_family(self):
        decoder = PodDecoder()
        first = decoded(pod(nodeSelector={"a": "1", "b": "2"}), decoder)
        second = decoded(pod(nodeSelector={"b": "2", "a": "1"}), decoder)
        assert first.template is second.template

    def test_volumes_that_matter_stay(self):
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data-0"}}
        plain = {"name": "tmp", "emptyDir": {}}
        assert decoded(pod(volumes=[plain, claim])).template.claim_names == ("data-0",)

    def test_families_that_are_gone_are_freed(self):
        decoder = PodDecoder()
        kept = decoded(pod(labels={"a": "1"}), decoder)
        gone = decoded(pod(priority=1, labels={"b": "1"}), decoder)
        assert (decoder.templates, decoder.label_sets) == (2, 2)
        del gone
        gc.collect()
        assert (decoder.templates, decoder.label_sets) == (1, 1)
        assert decoded(pod("web-9", labels={"a": "1"}), decoder).template is kept.template

    def test_conditions_that_are_read(self):
        conditions = [
            {"type": "Ready", "status": "True"},
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "m"},
            {"type": "DisruptionTarget", "status": "True"},
        ]
        got = decoded(pod(status={"conditions": conditions}))
        assert [c.type for c in got.conditions] == ["PodScheduled", "DisruptionTarget"]
        bound = [{"type": "PodScheduled", "status": "True"}]
        assert decoded(pod(node="n", status={"conditions": bound})).conditions == ()

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("1970-01-01T00:00:01Z", 1.0),
            ("2025-01-01T00:00:00Z", 1735689600.0),
            ("2025-01-01T02:00:00.5+02:00", 1735689600.5),
            (None, None),
        ],
    )
    def test_start_time(self, text, seconds):
        assert decoded(pod(status={"startTime": text})).start_time == seconds

    def test_claim_statuses(self):
        statuses = [{"name": "gpu", "resourceClaimName": "p-gpu"}, {"name": "optional"}]
        extended = {"resourceClaimName": "p-extended-resources-x", "requestMappings": []}
        got = decoded(
            pod(status={"resourceClaimStatuses": statuses, "extendedResourceClaimStatus": extended})
        )
        assert got.claim_statuses == (
            PodResourceClaimStatus("gpu", "p-gpu"),
            PodResourceClaimStatus("optional", None),
        )
        assert json.loads(got.extended_claim_status) == extended
        assert decoded(pod()).claim_statuses == ()
        assert decoded(pod()).extended_claim_status == b""

    def test_deletion(self):
        obj = pod()
        obj["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z"
        assert decoded(obj).terminating
        assert not decoded(obj).leaves_at_once
        obj["metadata"]["deletionGracePeriodSeconds"] = 0
        assert decoded(obj).leaves_at_once
        obj["metadata"]["finalizers"] = ["example.com/keep"]
        assert not decoded(obj).leaves_at_once


class TestResize:
    def status(self, running, allocated, conditions=()):
        return {
            "containerStatuses": [
                {
                    "name": "c",
                    "resources": {"requests": {"cpu": running}},
                    "allocatedResources": {"cpu": allocated},
                }
            ],
            "conditions": list(conditions),
        }

    def test_agreement_costs_nothing(self):
        assert decoded(pod(node="n", status=self.status("1", "1"))).resized is None

    def test_other_spelling_is_agreement(self):
        assert decoded(pod(node="n", status=self.status("1000m", "1"))).resized is None

    def test_the_larger_counts(self):
        got = decoded(pod(node="n", status=self.status("2", "1500m")))
        assert dict(got.resources.requested)["cpu"] == 2000

    def test_an_infeasible_wish_does_not_count(self):
        pending = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
        got = decoded(pod(node="n", status=self.status("500m", "500m", [pending])))
        assert dict(got.resources.requested)["cpu"] == 500

    def test_statuses_without_resources(self):
        status = {"containerStatuses": [{"name": "c", "ready": True}]}
        assert decoded(pod(node="n", status=status)).resized is None


class TestRaw:
    def test_kept_for_waiting_pods_only(self):
        decoder = PodDecoder(keep_raw=True)
        waiting, bound = decoded(pod(), decoder), decoded(pod(node="n"), decoder)
        assert bound.raw is None
        sent = json.loads(waiting.raw)
        assert list(sent) == ["metadata", "spec", "status"]
        assert "managedFields" not in sent["metadata"]
        assert sent["spec"] == pod()["spec"]

    def test_kept_for_bound_pods_when_asked_for(self):
        bound = decoded(pod(node="n"), PodDecoder(keep_bound_raw=True))
        assert json.loads(bound.raw)["spec"]["nodeName"] == "n"
        assert decoded(pod(), PodDecoder(keep_bound_raw=True)).raw is None

    def test_not_kept_otherwise(self):
        assert decoded(pod()).raw is None

    def test_strip_leaves_the_spelling_alone(self):
        raw = b'{"kind":"Node","apiVersion":"v1","metadata":{"name":"\\u003cn\\u003e","x":1.50},"z":[ 1 , 2 ]}'
        stripped = strip_for_extender(raw)
        assert b'"\\u003cn\\u003e","x":1.50' in stripped
        assert b"[ 1 , 2 ]" in stripped

    @settings(max_examples=50)
    @given(JSON)
    def test_strip_takes_three_keys_only(self, value):
        obj = {"kind": "K", "metadata": {"name": "n", "managedFields": value}, "spec": value}
        stripped = json.loads(strip_for_extender(json.dumps(obj).encode()))
        assert stripped == {"metadata": {"name": "n"}, "spec": value}


class TestBadObjects:
    def test_a_quantity_that_is_none(self):
        containers = [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]
        with pytest.raises(DecodeError, match=r"Pod shop/web-1: .*quantities must match") as caught:
            decoded(pod(containers=containers))
        assert caught.value.key == "shop/web-1"

    def test_a_wrong_type(self):
        with pytest.raises(DecodeError, match="Pod shop/web-1: Expected `array") as caught:
            decoded(pod(tolerations={}))
        assert (caught.value.named.namespace, caught.value.named.name) == ("shop", "web-1")

    def test_null_is_absent(self):
        obj = pod(hostNetwork=None, containers=[{"name": None, "image": "x"}])
        obj["status"] = None
        assert decoded(obj).spec.containers[0].image == "x"

    @pytest.mark.parametrize(
        "broken",
        [b"", b"{", b"[]", b'{"type":"ADDED"}', b'{"type":"ADDED","object":{"a":1}', b"\xff"],
    )
    def test_a_broken_line(self, broken):
        with pytest.raises(DecodeError, match="Pod: "):
            PodDecoder().decode_line(broken)

    def test_an_object_that_is_none(self):
        with pytest.raises(DecodeError, match="Pod: Expected `object`"):
            PodDecoder().decode_line(b'{"type":"ADDED","object":[]}')


def reads(value):
    try:
        msgspec.json.decode(f'{{"a":[{value}]}}', type=msgspec.Raw)
    except RecursionError:
        return False
    return True


DEEP = [f"{'[' * levels}{']' * levels}" for levels in (1_200, 10_000, 100_000)]
#: Whether msgspec reads it: the limit is that of the interpreter.
READABLE = {value: reads(value) for value in DEEP}
ODD = [*DEEP, r'"\ud800"', r'{"\udfff":"\ud800\ud800"}']


class TestWhatGoReads:
    """JSON that API servers store and hand on, but that msgspec does not read."""

    @staticmethod
    def with_value(obj, place, value):
        return json.dumps(obj).replace(f'"{place}"', value).encode()

    @pytest.mark.parametrize("value", ODD, ids=lambda value: value[:8])
    @pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
    def test_in_managed_fields_of_a_pod(self, kind, value):
        obj = pod(node="n", labels={"a": "1"})
        obj["metadata"]["managedFields"] = [{"fieldsV1": "here"}]
        decoder = PodDecoder(keep_raw=True, keep_bound_raw=True)
        got = decoder.decode_line(self.with_value({"type": kind, "object": obj}, "here", value))
        assert got[0] == kind
        assert (got[1].key, got[1].node_name, dict(got[1].labels)) == (
            "shop/web-1",
            "n",
            {"a": "1"},
        )
        assert got[1].template is decoded(pod(node="n"), decoder).template
        assert b"managedFields" not in got[1].raw

    @pytest.mark.parametrize("value", ODD, ids=lambda value: value[:8])
    def test_in_a_field_that_is_not_read(self, value):
        node = {"metadata": {"name": "n", "x": "here"}, "spec": {"y": "here"}}
        got = NodeDecoder(keep_raw=True).decode(self.with_value(node, "here", value))
        assert got.name == "n"

    @pytest.mark.parametrize("value", ODD, ids=lambda value: value[:8])
    def test_in_parameters_of_a_device(self, value):
        opaque = {"driver": "d", "parameters": {"x": "here", "y": 1}}
        claim = {
            "metadata": {"name": "c", "namespace": "shop"},
            "spec": {"devices": {"config": [{"opaque": opaque}]}},
        }
        [config] = (
            decoder_for(ResourceClaim)
            .decode(self.with_value(claim, "here", value))
            .spec.devices.config
        )
        parameters = msgspec.json.decode(config.opaque.parameters)
        assert parameters["y"] == 1
        assert is_emptied(bytes(config.opaque.parameters)) == (
            value in DEEP and not READABLE[value]
        )

    @pytest.mark.parametrize("value", ODD, ids=lambda value: value[:8])
    def test_in_a_field_that_is_read(self, value):
        text = self.with_value(pod(tolerations="here"), "here", value)
        with pytest.raises(DecodeError, match="shop/web-1"):
            PodDecoder().decode(text)

    @pytest.mark.parametrize("value", ODD, ids=lambda value: value[:8])
    def test_in_bookmarks_and_errors(self, value):
        text = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"},"x":%s}}'
        assert PodDecoder().decode_line(text % value.encode())[1].resource_version == "9"
        text = b'{"type":"ERROR","object":{"code":410,"details":%s}}'
        assert PodDecoder().decode_line(text % value.encode())[1].code == 410


class TestInstead:
    """Objects that cannot be read, but from which something must be known."""

    def decoded_in_part(self, decoder, obj):
        with pytest.raises(DecodeError) as caught:
            decoder.decode(json.dumps(obj).encode())
        return caught.value.instead

    def test_a_bound_pod_takes_what_it_takes(self):
        containers = [
            {"name": "c", "resources": {"requests": {"cpu": "2"}}, "ports": [{"hostPort": 80}]}
        ]
        obj = pod(node="n", labels={"a": "1"}, containers=containers, tolerations={})
        got = self.decoded_in_part(PodDecoder(), obj)
        whole = decoded(pod(node="n", labels={"a": "1"}, containers=containers))
        assert (got.key, got.uid, got.node_name) == (whole.key, whole.uid, "n")
        assert (got.resources, dict(got.labels)) == (whole.resources, dict(whole.labels))
        assert got.template.host_ports == whole.template.host_ports
        assert got.resource_version == whole.resource_version

    def test_a_bound_pod_with_labels_that_are_none(self):
        got = self.decoded_in_part(PodDecoder(), pod(node="n", labels={"a": 1}))
        assert (got.node_name, dict(got.labels)) == ("n", {})

    def test_a_pod_that_waits_is_left_out(self):
        assert self.decoded_in_part(PodDecoder(), pod(tolerations={})) is None

    def test_a_bound_pod_whose_requests_cannot_be_read_takes_all_of_its_node(self):
        containers = [{"name": "c", "resources": {"requests": {"cpu": "lots"}}}]
        got = self.decoded_in_part(PodDecoder(), pod(node="n", containers=containers))
        assert (got.key, got.node_name, got.template.priority) == ("shop/web-1", "n", 2**31 - 1)
        assert got.template.request["cpu"] > 2**50 < got.template.request["memory"]

    def test_no_pod_goes_to_a_node_that_cannot_be_read(self):
        node = {"metadata": {"name": "n", "uid": "u"}, "spec": {"taints": 5}}
        got = self.decoded_in_part(NodeDecoder(), node)
        assert (got.name, got.uid, got.spec.unschedulable) == ("n", "u", True)
        assert not got.status.allocatable

    def test_devices_of_a_claim_stay_in_use(self):
        result = {"request": "r", "driver": "d", "pool": "p", "device": "gpu"}
        claim = {
            "metadata": {"name": "c", "namespace": "shop", "uid": "u"},
            "spec": 5,
            "status": {"allocation": {"devices": {"results": [result]}}},
        }
        got = self.decoded_in_part(decoder_for(ResourceClaim), claim)
        assert got.key == "shop/c"
        assert [it.device for it in got.status.allocation.devices.results] == ["gpu"]
        del claim["status"]
        assert self.decoded_in_part(decoder_for(ResourceClaim), claim) is None

    def test_in_a_list_it_is_there(self):
        skipped = []
        body = json.dumps({"items": [pod("a"), pod("b", node="n", tolerations={})]}).encode()
        items, _, _ = PodDecoder().decode_list(body, skipped)
        assert [item.name for item in items] == ["a", "b"]
        assert [err.key for err in skipped] == ["shop/b"]


class TestLine:
    @pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
    def test_types(self, kind):
        assert PodDecoder().decode_line(line(pod(), kind))[0] == kind

    @pytest.mark.parametrize(
        "spelling",
        [
            b'{"object":%s,"type":"ADDED"}',
            b'{ "type": "ADDED", "object": %s }',
            b'{"type":"ADDED","object":%s,"extra":{}}\r\n',
        ],
    )
    def test_other_spellings(self, spelling):
        raw = json.dumps(pod()).encode()
        kind, got = PodDecoder().decode_line(spelling % raw)
        assert (kind, got.name) == ("ADDED", "web-1")

    def test_bookmark(self):
        obj = {
            "kind": "Pod",
            "metadata": {"resourceVersion": "99", "annotations": {INITIAL_EVENTS_END: "true"}},
            "spec": {"containers": None},
            "status": {},
        }
        kind, got = PodDecoder().decode_line(line(obj, "BOOKMARK"))
        assert (kind, got.resource_version) == ("BOOKMARK", "99")
        assert got.annotations[INITIAL_EVENTS_END] == "true"

    def test_error(self):
        obj = {
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": "too old resource version",
            "reason": "Expired",
            "code": 410,
        }
        kind, got = PodDecoder().decode_line(line(obj, "ERROR"))
        assert kind == "ERROR"
        assert got == ApiStatus(410, "Expired", "too old resource version", "Failure")


class TestList:
    def body(self, *items, **metadata):
        return json.dumps({"kind": "PodList", "metadata": metadata, "items": list(items)}).encode()

    def test_page(self):
        body = self.body(pod("a"), pod("b"), resourceVersion="5", **{"continue": "tok"})
        items, version, token = PodDecoder().decode_list(body)
        assert ([p.name for p in items], version, token) == (["a", "b"], "5", "tok")

    def test_empty(self):
        assert PodDecoder().decode_list(b'{"metadata":{"resourceVersion":"5"},"items":null}') == (
            [],
            "5",
            "",
        )

    def test_a_bad_item_is_left_out_and_named(self):
        skipped = []
        items, _, _ = PodDecoder().decode_list(
            self.body(pod("a"), pod("bad", tolerations={}), pod("b")), skipped
        )
        assert [p.name for p in items] == ["a", "b"]
        assert [e.key for e in skipped] == ["shop/bad"]

    def test_a_bad_item_raises_when_nobody_collects(self):
        with pytest.raises(DecodeError, match="shop/bad"):
            PodDecoder().decode_list(self.body(pod("bad", tolerations={})))

    @given(st.lists(st.sampled_from(["good", "null", "label", "tolerations"]), max_size=8))
    def test_one_that_cannot_be_read_costs_itself_only(self, states):
        """Wherever it is, and in whatever company: the others are what they are alone."""
        made = {
            "good": lambda name: pod(name, labels={"a": "1"}),
            "null": lambda name: pod(name, tolerations=None, labels={"a": None, "b": "2"}),
            "label": lambda name: pod(name, labels={"a": 1}),
            "tolerations": lambda name: pod(name, tolerations={}),
        }
        objects = [made[state](f"{state}-{i}") for i, state in enumerate(states)]
        skipped, decoder = [], PodDecoder()
        items, _, _ = decoder.decode_list(self.body(*objects), skipped)
        good = [o for o, s in zip(objects, states, strict=True) if s in {"good", "null"}]
        bad = [o for o in objects if o not in good]
        assert [e.key for e in skipped] == [f"shop/{o['metadata']['name']}" for o in bad]
        assert list(map(msgspec.structs.asdict, items)) == [
            msgspec.structs.asdict(decoded(o, decoder)) for o in good
        ]

    def test_a_broken_list(self):
        with pytest.raises(DecodeError, match="unreadable list"):
            PodDecoder().decode_list(b'{"items":')


NODE = {
    "kind": "Node",
    "apiVersion": "v1",
    "metadata": {"name": "n1", "labels": {"zone": "a"}, "managedFields": []},
    "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}], "unschedulable": True},
    "status": {
        "allocatable": {"cpu": "4", "pods": 110},
        "images": [{"names": ["a:1"], "sizeBytes": 5}],
    },
}


class TestOtherKinds:
    def test_node(self):
        got = NodeDecoder().decode_line(line(NODE))[1]
        assert (got.name, got.key, got.raw) == ("n1", "n1", None)
        assert got.spec.taints[0].key == "k"
        assert got.status.allocatable == {"cpu": "4", "pods": 110}

    def test_node_with_its_bytes(self):
        got = NodeDecoder(keep_raw=True).decode_line(line(NODE))[1]
        assert json.loads(got.raw) == {
            "metadata": {"name": "n1", "labels": {"zone": "a"}},
            "spec": NODE["spec"],
            "status": NODE["status"],
        }

    def test_any_kind(self):
        service = {
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"a": "b"}},
        }
        got = decoder_for(Service).decode_line(line(service))[1]
        assert (got.key, got.spec.selector) == ("shop/web", {"a": "b"})

    @pytest.mark.parametrize("kind", [PersistentVolume, PodDisruptionBudget, StorageClass])
    def test_the_bare_minimum(self, kind):
        assert decoder_for(kind).decode(b'{"metadata":{"name":"x"}}').name == "x"

    def test_cluster_scoped_names_in_errors(self):
        bad = {"metadata": {"name": "n9"}, "spec": {"taints": 5}}
        with pytest.raises(DecodeError, match=r"^Node n9: "):
            NodeDecoder().decode_line(line(bad))

    @pytest.mark.parametrize(
        ("kind", "body"),
        [
            (PodDisruptionBudget, {"status": {"disruptionsAllowed": 2**31}}),
            (CSINode, {"spec": {"drivers": [{"name": "d", "allocatable": {"count": 2**63}}]}}),
            (Node, {"status": {"images": [{"names": ["a"], "sizeBytes": -(2**63) - 1}]}}),
            (ResourceSlice, {"spec": {"pool": {"name": "p", "generation": 2**63}}}),
            (Node, {"status": {"allocatable": {"cpu": msgspec.Raw(b"9" * 400)}}}),
        ],
        ids=lambda value: getattr(value, "__name__", ""),
    )
    def test_numbers_that_go_cannot_hold_are_refused(self, kind, body):
        with pytest.raises(DecodeError, match=rf"^{kind.__name__} x: Expected `int`"):
            decoder_for(kind).decode(msgspec.json.encode({"metadata": {"name": "x"}, **body}))


def test_the_json_of_pods_is_kept_where_it_is_wanted():
    decoder = PodDecoder(keep_raw=lambda template, labels: labels.get("team") == "ml")
    for team, kept in (("ml", True), ("web", False)):
        pod = decoder.decode(
            json.dumps({"metadata": {"name": "p", "labels": {"team": team}}, "spec": {}}).encode()
        )
        assert (pod.raw is not None) is kept
