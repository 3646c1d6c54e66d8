"""Known differences of other versions do not count."""

import pytest

from app.framework.testing import make_pod
from app.model.pod import Pod
from app.tools.shadow.versions import Version, version_of
from tests.core.shadow.playing import Player, world

MESSAGE = "0/1 nodes are available: 1 Insufficient cpu. {}preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."


@pytest.mark.parametrize("text", ["v1.36.2", "1.36", "v1.36.0+aiokube-scheduler"])
def test_1_36_has_no_differences(text):
    assert version_of(text) == Version()


def test_later_versions_name_what_does_not_count():
    lines = version_of("v1.37.1").lines
    assert len(lines) == 5
    assert all(line.startswith("Does not count: ") for line in lines)
    assert len(version_of("v1.38.0").lines) == 6


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
    later = version_of("v1.37.0")
    assert later.comparable(old) == later.comparable(new)
    assert version_of("v1.36.0").comparable(old) != version_of("v1.36.0").comparable(new)
    placed = "0/1 nodes are available: 1 Insufficient cpu."
    more = (
        f"{placed} preemption: found a potential placement for pod on node a, preempting 1 victims"
    )
    assert later.comparable(more) == placed


def test_a_difference_counts_only_where_the_version_makes_none():
    later = version_of("v1.37.0")
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    with_claim = make_pod(spec={"volumes": volumes, "containers": [{"name": "c", "image": "i"}]})
    assert later.known(with_claim, ("VolumeBinding",))
    assert not later.known(make_pod(), ("VolumeBinding",))
    assert not later.known(with_claim, ("NodeResourcesFit",))


def test_a_known_message_of_1_37_is_the_same():
    player = Player(world(), world())
    player.judge.version = version_of("v1.37.0")
    player.node("a")
    large = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "9"}}}]}
    pod = player.pod("p", spec=large)
    player.show(Pod, pod, player.refused(pod, MESSAGE.format("")))
    (verdict,) = player.catch_up()
    assert verdict.kind == "same"
