"""``--redact``: no name is left in a recording, and it replays as the plain one."""

import json
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zstandard
from click.testing import CliRunner

from app.cli.run import command as run
from app.cli.shadow import command as shadow
from app.extender.config import Verb
from app.extender.errors import CallOutcome
from app.extender.events import CallFinished
from app.model.devices import DeviceClass, ResourceClaim, ResourceSlice
from app.model.objects import Namespace, Node, PodDisruptionBudget, Service
from app.model.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from app.plugins import registry
from app.scheduler.recording import Recorder
from app.scheduler.redaction import Redactor
from app.scheduler.trace import BlockWriter, Header, Op, files_of, read_records
from app.tools.replay.run import replay
from app.wire.extender_v1 import Body
from tests.core.scheduler.full_state import FullState
from tests.shell.tools.recordings import Script, configuration, node
from tests.shell.tools.test_replay import Clock

TRACES = Path(__file__).parent.parent / "tools" / "traces"
CLASSES = registry.registry(())
NAMES = ["plain", "preemption", "volumes", "devices", "faulty-extender"]


def again(trace):
    return replay(trace, CLASSES, most=10**6, look=lambda _: None)


def redacted(source, target, secret=b"secret"):
    """A copy of a recording's file without names."""
    redactor, writer = Redactor(secret), BlockWriter(target)
    for record in read_records(source):
        whole = record[0] if isinstance(record[0], Header) else record
        writer.write([redactor.encoded(msgspec.msgpack.encode(whole))])
    writer.close()
    return target


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_of_a_real_api_server_decides_the_same_without_names(name, tmp_path):
    plain = again(TRACES / f"{name}.aktrace")
    hidden = again(redacted(TRACES / f"{name}.aktrace", tmp_path / "a.aktrace"))
    assert (hidden.differences, hidden.incomplete, hidden.gaps) == ([], "", 0)
    assert (hidden.decisions, hidden.adopted) == (plain.decisions, plain.adopted)
    assert hidden.hash != plain.hash  # it names nodes


def test_a_decision_that_differs_still_shows(tmp_path):
    """As if the scheduler had chosen another node."""
    source = redacted(TRACES / "plain.aktrace", tmp_path / "a.aktrace")
    writer = BlockWriter(tmp_path / "b.aktrace")
    for number, record in enumerate(read_records(source)):
        whole = record[0] if isinstance(record[0], Header) else record
        if record[0] == Op.ASSUME and number % 2:
            whole = [*record[:2], "elsewhere"]
        writer.write([msgspec.msgpack.encode(whole)])
    writer.close()
    assert again(tmp_path / "b.aktrace").differences


# ---------------------------------------------------------------- what is hidden

#: Part of every name in these tests that people have chosen.
OURS = "ourname"


def unpacked(folder):
    """All bytes of a recording."""
    whole = b""
    for file in files_of(folder):
        data = file.read_bytes()[16:]
        while data:
            size = int.from_bytes(data[:4], "big")
            whole += zstandard.ZstdDecompressor().decompress(data[8 : 8 + size])
            data = data[8 + size :]
    return whole


def config():
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": OURS, "operator": "In", "values": [OURS]}]}
            ]
        }
    }
    args = {"name": "NodeAffinity", "args": {"addedAffinity": affinity}}
    extender = {"urlPrefix": f"https://{OURS}.example.com/x", "filterVerb": "filter"}
    return configuration(
        profiles=[{"schedulerName": "default-scheduler", "pluginConfig": [args]}],
        extenders=[extender],
    )


def fill(full):
    labels = {f"{OURS}.com/team": f"{OURS}-a", "kubernetes.io/hostname": f"{OURS}-n0", "size": "17"}
    taint = {"key": f"{OURS}.com/dedicated", "value": OURS, "effect": "PreferNoSchedule"}
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    status = {"allocatable": amounts, "images": [{"names": [f"{OURS}/app:1"], "sizeBytes": 9}]}
    meta = {"labels": labels, "uid": "u0"}
    full.add(Node, f"{OURS}-n0", metadata=meta, spec={"taints": [taint]}, status=status)
    full.add(Namespace, f"{OURS}-ns", metadata={"labels": {"kubernetes.io/metadata.name": OURS}})
    in_ns = {"namespace": f"{OURS}-ns", "annotations": {f"{OURS}.com/who": f"{OURS}@example.com"}}
    full.add(Service, f"{OURS}-svc", metadata=in_ns, spec={"selector": {OURS: OURS}})
    budget = {"selector": {"matchLabels": {OURS: OURS}}}
    full.add(
        PodDisruptionBudget,
        f"{OURS}-pdb",
        metadata=in_ns,
        spec=budget,
        status={"disruptionsAllowed": 1, "disruptedPods": {OURS: "2026-01-01T00:00:00Z"}},
    )
    terms = [{"matchExpressions": [{"key": OURS, "operator": "In", "values": [OURS]}]}]
    full.add(
        PersistentVolume,
        f"{OURS}-pv",
        spec={
            "capacity": {"storage": "1Gi"},
            "storageClassName": OURS,
            "claimRef": {"namespace": OURS, "name": OURS},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": OURS},
        },
    )
    full.add(PersistentVolumeClaim, OURS, metadata=in_ns, spec={"volumeName": f"{OURS}-pv"})
    full.add(StorageClass, OURS, provisioner="ebs.csi.aws.com")
    full.add(CSINode, f"{OURS}-n0", spec={"drivers": [{"name": "ebs.csi.aws.com"}]})
    source = {"persistentVolumeName": OURS}
    attached = {"attacher": "ebs.csi.aws.com", "nodeName": OURS, "source": source}
    full.add(VolumeAttachment, OURS, spec=attached)
    full.add(DeviceClass, "gpu.example.com")
    pool = {"name": OURS, "generation": 1, "resourceSliceCount": 1}
    full.add(
        ResourceSlice,
        OURS,
        spec={
            "driver": "d.example.com",
            "pool": pool,
            "nodeName": OURS,
            "devices": [{"name": "g"}],
        },
    )
    request = {"name": "r", "exactly": {"deviceClassName": "gpu.example.com"}}
    full.add(ResourceClaim, OURS, metadata=in_ns, spec={"devices": {"requests": [request]}})


def pods(full):
    spec = {
        "nodeSelector": {f"{OURS}.com/team": f"{OURS}-a"},
        "containers": [{"name": OURS, "image": f"{OURS}.example.com/app:1"}],
        "tolerations": [{"key": OURS, "operator": "Equal", "value": OURS, "effect": "NoSchedule"}],
        "volumes": [{"name": OURS, "persistentVolumeClaim": {"claimName": OURS}}],
        "schedulingGates": [{"name": f"{OURS}.com/gate"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": f"{OURS}.com/rack",
                        "namespaces": [OURS],
                        "labelSelector": {"matchLabels": {OURS: OURS}},
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {OURS: OURS}},
            }
        ],
    }
    owner = {"kind": "ReplicaSet", "name": OURS, "uid": "u", "controller": True}
    meta = {"namespace": f"{OURS}-ns", "labels": {OURS: OURS}, "ownerReferences": [owner]}
    full.pod(f"{OURS}-0", spec, uid="uid-0", nominated=f"{OURS}-n0", **meta)


def test_no_name_that_people_have_chosen_is_left(tmp_path):
    full = FullState()
    fill(full)
    recorder = Recorder(tmp_path, Clock(), secret="key")
    recorder.begin(
        Header("0", config(), "1.36", [], 300.0, 0.0, first=True),
        full.state,
        np.random.default_rng(1),
    )
    assert recorder.open()  # the checkpoint has the objects
    pods(full)
    pod = full.objects[next(key for key in full.objects if key[0].__name__ == "Pod")]
    for each in list(full.objects.values()):
        recorder.came(type(each), {each.key: each}, 1.0)
    recorder.add(Op.DELETED.value, 1.0, "Pod", pod.key)
    recorder.extend((Op.ASSUME.value, "uid-0", f"{OURS}-n0"))
    recorder.extend((Op.POD_BOUND.value, 1.0, "uid-0", f"{OURS}-n0", "2"))
    recorder.add(Op.REFRESH_LANES.value, f"{OURS}-ns")
    recorder.add(Op.UNFIT.value, "uid-0", f"node(s) had untolerated taint {{{OURS}: {OURS}}}")
    recorder.add(Op.FAIL.value, 1.0, "uid-0", OURS, [f"https://{OURS}.example.com/x"], [])
    recorder.put(Op.NAMES.value, 1, json.dumps([f"{OURS}-n0"]).encode())
    sink = recorder.extender_sink(lambda _event: None)
    answers = [
        {"NodeNames": [OURS], "FailedNodes": {OURS: f"because of {OURS}"}, "Error": OURS},
        {"Nodes": {"items": [{"metadata": {"name": OURS, "labels": {OURS: OURS}}}]}},
        [{"Host": OURS, "Score": 3}],
        OURS,
    ]
    for answer in answers:
        for verb in (Verb.FILTER, Verb.PREEMPT):
            text = json.dumps(answer).encode()
            sink(
                CallFinished(
                    f"https://{OURS}.example.com/x",
                    verb,
                    CallOutcome.SUCCESS,
                    0.1,
                    1,
                    len(text),
                    pod,
                    Body((b"",)),
                    text,
                    None,
                    200,
                    None,
                )
            )
    recorder.end()
    assert recorder.dropped == 0
    found = unpacked(tmp_path)
    assert OURS.encode() not in found, found[found.index(OURS.encode()) - 300 :][:400]
    for kept in (
        b"ebs.csi.aws.com",
        b"gpu.example.com",
        b"kubernetes.io/hostname",
        b'"17"',
        b"1Gi",
    ):
        assert kept in found
    records = [record for file in files_of(tmp_path) for record in read_records(file)]
    hidden = Redactor(b"key").hide
    nodes = [json.loads(r[2]) for r in records if r[0] == Op.OBJECT and r[1] == "Node"]
    [metadata] = [each["metadata"] for each in nodes]
    assert metadata["name"] == metadata["labels"]["kubernetes.io/hostname"] == hidden(f"{OURS}-n0")
    assert [r[2] for r in records if r[0] == Op.ASSUME] == [metadata["name"]]
    assert [r[3] for r in records if r[0] == Op.POD_BOUND] == [metadata["name"]]


def test_what_cannot_be_read_is_not_written(tmp_path):
    full = FullState()
    recorder = Recorder(tmp_path, Clock(), secret="key")
    recorder.begin(
        Header("0", config(), "1.36", [], 300.0, 0.0, first=True),
        full.state,
        np.random.default_rng(1),
    )
    recorder.add(Op.DONE.value, "uid")
    recorder._hand_over()
    recorder.add(Op.CHANGED.value, 1.0, "Node", f"{OURS} is no JSON".encode())
    recorder.end()
    assert recorder.dropped == 1
    assert OURS.encode() not in unpacked(tmp_path)


def test_images_are_the_same_as_before():
    image = Redactor(b"key")._image
    assert image("example.com:5000/a/b") == image("example.com:5000/a/b:latest")
    assert len({image(name) for name in ("a", "a:1", "b", "x/a", "a@sha256:0")}) == 5


def test_two_recordings_hide_a_name_otherwise():
    assert Redactor(b"a").hide("name") != Redactor(b"b").hide("name")
    assert Redactor(b"a").hide("42") == "42"


def test_a_question_about_extenders_is_answered_without_names(tmp_path):
    """What an extender said of a node is looked up by the hidden name."""
    script = Script(tmp_path / "plain", configuration(), node("n0"), node("n1"))
    script.pod(1.0, "p")
    script.call(1.5, "filter", "p", ["n0", "n1"], {"NodeNames": ["n1"]})
    source = script.ends(2.0) / "00000001.aktrace"
    records = list(read_records(redacted(source, tmp_path / "a.aktrace")))
    [names] = [json.loads(record[2]) for record in records if record[0] == Op.NAMES]
    [call] = [record for record in records if record[0] == Op.CALL]
    assert json.loads(call[7]) == {"NodeNames": names[1:]}
    assert names[0] != "n0"


@pytest.mark.parametrize("command", [run, shadow])
def test_redact_is_for_recordings(command):
    result = CliRunner().invoke(command, ["--redact"])
    assert (result.exit_code, "--redact is for --record" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("given", "hidden"),
    [
        ('[{"host": "n1", "score": 7}]', [{"Host": "{n1}", "Score": 7}]),
        ('{"nodenames": ["n1"], "other": "n1"}', {"nodenames": ["{n1}"]}),
        ('{"NodeNames": ["n1"], "FailedNodes": {"n2": "n3"}}',
         {"NodeNames": ["{n1}"], "FailedNodes": {"{n2}": ""}}),
    ],
)  # fmt: skip
def test_an_answer_without_names_says_the_same(given, hidden):
    redactor = Redactor(b"k")
    wanted = re.sub(r"\{(n\d)\}", lambda match: redactor.hide(match[1]), json.dumps(hidden))
    called = [Op.CALL.value, 1.0, "http://x", "filter", "uid", "success", 0.1, given.encode()]
    assert json.loads(redactor.record(called)[7]) == json.loads(wanted)


@pytest.mark.parametrize(
    "given",
    ["[1]", '[{"Host": "n1"}]', '[{"Host": 3, "Score": 1}]', '[{"Host": "n1", "Score": 1e400}]', "3", "null", "{",
     '{"Nodes": {"items": [{}]}}', '{"NodeNames": [[]]}', "[" * 5000],
)  # fmt: skip
def test_an_answer_of_another_form_is_left_out_and_nothing_else(given):
    called = [Op.CALL.value, 1.0, "http://x", "filter", "uid", "success", 0.1, given.encode()]
    assert Redactor(b"k").record(called)[7] == b""
