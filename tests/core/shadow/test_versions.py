"""Versions of Kubernetes: their rules, what the rules of another one would change, and known differences that do not
count."""

import msgspec
import numpy as np
import pytest

from app.framework.testing import make_pod
from app.model.features import RECORDED, Features
from app.model.objects import Namespace, ObjectMeta
from app.model.pod import Pod
from app.plugins import registry
from app.scheduler.kinds import pods
from app.settings.load import load
from app.state.scheduler_state import Change
from app.tools.shadow.versions import Version, version_of
from app.tools.shadow.world import make_world
from tests.core.shadow.playing import HEAD, Player

MESSAGE = "0/1 nodes are available: 1 Insufficient cpu. {}preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


@pytest.mark.parametrize("text", ["v1.36.2", "1.36", "v1.37.1", "v1.38.0-alpha.2"])
def test_by_the_rules_of_its_version_a_cluster_has_no_differences(text):
    assert version_of(text) == Version()


def test_rules_of_another_version_are_named():
    newer = version_of("v1.36.2", Features.of("1.37")).lines
    assert len(newer) == len(Features.of("1.37").rules)
    assert (
        "By the rules of 1.37, not by those of 1.36: nodes are scored by the storage that is left for unbound claims "
        "(storage-scores)." in newer
    )
    assert version_of("v1.37.0", RECORDED).lines == newer
    assert len(version_of("v1.39.0").lines) == 1


def test_an_unknown_version_is_taken_for_1_36():
    version = version_of("unknown (refused)")
    assert len(version.lines) == 1
    assert not version.differences


@pytest.mark.parametrize(("text", "number"), [("v1.35.4", 4), ("v1.34.0", 4), ("v1.33.1", 5)])
def test_earlier_versions_name_what_does_not_count(text, number):
    version = version_of(text)
    assert len(version.lines) == number
    assert all(line.startswith("Does not count: ") for line in version.lines[:-1])
    assert version.lines[-1].endswith("are not known: they count.")


def test_a_pod_with_devices_does_not_count_before_1_36():
    claims = {"resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}
    pod = make_pod(spec=claims | {"containers": [{"name": "c", "image": "i"}]})
    assert version_of("v1.35.0").known(pod, ("DynamicResources",))
    assert not version_of("v1.36.0").known(pod, ("DynamicResources",))
    assert not version_of("v1.35.0").known(make_pod(), ("DynamicResources",))
    assert not version_of("v1.34.0").known(pod, ("NodeResourcesFit",))


def test_pod_level_resources_do_not_count_before_1_34():
    level = {"resources": {"requests": {"cpu": "1"}}}
    pod = make_pod(spec=level | {"containers": [{"name": "c", "image": "i"}]})
    assert version_of("v1.33.0").known(pod, ("NodeResourcesFit",))
    assert not version_of("v1.34.0").known(pod, ("NodeResourcesFit",))


def test_messages_are_compared_without_what_1_37_writes_otherwise():
    old, new = MESSAGE.format("no new claims to deallocate, "), MESSAGE.format("")
    later = version_of("v1.36.0", Features.of("1.37"))
    assert later.comparable(old) == later.comparable(new)
    assert version_of("v1.36.0").comparable(old) != version_of("v1.36.0").comparable(new)
    placed = "0/1 nodes are available: 1 Insufficient cpu."
    more = (
        f"{placed} preemption: found a potential placement for pod on node a, preempting 1 victims"
    )
    assert later.comparable(more) == placed


CLAIM = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}]}


def preview(newer="1.37", older="1.36"):
    """A cluster of one version, and a shadow with the rules of another."""
    here, theirs = Features.of(newer), Features.of(older)
    classes = registry.registry()
    profiles = load(HEAD).to_plain(registry.capabilities(classes), here)
    rng = np.random.default_rng(1)
    player = Player(
        make_world(profiles, classes, rng, theirs), make_world(profiles, classes, rng, here, theirs)
    )
    player.judge.version = version_of(f"v{older}.0", here)
    return player


def test_a_message_of_another_version_is_the_same():
    player = preview()
    player.node("a")
    pod = player.pod("p", spec=CLAIM)
    player.show(Pod, pod, player.refused(pod, MESSAGE.format("no new claims to deallocate, ")))
    (verdict,) = player.catch_up()
    assert verdict.kind == "same"


TERM = {
    "topologyKey": "kubernetes.io/hostname",
    "labelSelector": {"matchLabels": {"app": "web"}},
    "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
}


@pytest.mark.parametrize(("newer", "older"), [("1.37", "1.36"), ("1.36", "1.37")])
def test_a_pod_that_would_move_has_the_rule_that_moves_it(newer, older):
    player = preview(newer, older)
    player.tell(
        Namespace, None, Namespace(metadata=ObjectMeta(name="default", labels={"team": "a"}))
    )
    player.node("a", labels={"kubernetes.io/hostname": "a"})
    player.schedule("web", labels={"app": "web"})
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}
    player.schedule("p", spec={"affinity": affinity, "containers": [{"name": "c", "image": "i"}]})
    player.schedule("other")
    verdicts = {verdict.pod: verdict for verdict in player.catch_up()}
    assert verdicts["default/web"].kind == verdicts["default/other"].kind == "same"
    assert verdicts["default/p"].kind == "other-rule"
    assert verdicts["default/p"].change.startswith("rule namespaces-once: a namespace selector")


RESIZING = {
    "metadata": {"name": "there", "namespace": "default", "uid": "there", "resourceVersion": "1"},
    "spec": {
        "schedulerName": "default-scheduler",
        "nodeName": "a",
        "containers": [
            {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu}}}
            for name, cpu in (("x", "2"), ("y", "1"))
        ],
    },
    "status": {
        "containerStatuses": [
            {
                "name": name,
                "allocatedResources": {"cpu": cpu},
                "resources": {"requests": {"cpu": cpu}},
            }
            for name, cpu in (("x", "1"), ("y", "2"))
        ]
    },
}


@pytest.mark.parametrize(("newer", "older"), [("1.37", "1.36"), ("1.36", "1.37")])
def test_a_pod_that_moves_because_of_one_in_a_resize_has_the_rule(newer, older):
    """It counts with 4 CPUs by the rule of 1.36, with 3 by that of 1.37: only then it leaves one."""
    player = preview(newer, older)
    cpus = {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "9"}}
    for name in "ab":
        player.node(name, labels={"n": name}, status=cpus)
    player.catch_up()
    player.now += 100.0
    here, theirs = Features.of(newer), Features.of(older)

    def read(features, others):
        kind = pods(keep_raw=False, keep_bound_raw=False, features=features, theirs=others)
        return kind.decoder.decode(msgspec.json.encode(RESIZING))

    player.theirs.state.apply(Change(Pod, None, read(theirs, None)), 0.0)
    there = read(here, theirs)
    player.here.state.apply(Change(Pod, None, there), 0.0)
    prefers = {"matchExpressions": [{"key": "n", "operator": "In", "values": ["a"]}]}
    preferred = [{"weight": 100, "preference": prefers}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    player.schedule("p", spec={"affinity": affinity, "containers": [container]})
    player.schedule("other", spec={"nodeSelector": {"n": "b"}, "containers": [container]})
    verdicts = {verdict.pod: verdict for verdict in player.catch_up()}
    assert verdicts["default/other"].kind == "same"
    assert verdicts["default/p"].kind == "other-rule"
    assert verdicts["default/p"].change == (
        "rule sums-of-resize: a pod in a resize counts with the largest of three sums, not with the largest of each container"
    )
    assert player.here.state.latest(there) is there
