"""What is known of pods while the scheduler is at work on them."""

import io
import re
from typing import Any

import pytest
from rich.console import Console

from app.sim import EmbeddedCluster
from app.sim.resources.kinds import NAMESPACES, PODS, RESOURCE_CLAIMS
from app.tools.pod_tracker import PodTracker, pods_bound

TrackedPod = dict[str, Any]


@pytest.fixture
def cluster() -> EmbeddedCluster:
    made = EmbeddedCluster()
    made.api.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    return made


def make_pod(cluster: EmbeddedCluster, *claims: TrackedPod) -> None:
    spec = {"containers": [{"name": "c", "image": "i"}], "resourceClaims": list(claims)}
    cluster.apply(PODS, {"metadata": {"name": "p"}, "spec": spec})


def make_claim(cluster: EmbeddedCluster, name: str) -> None:
    cluster.apply(RESOURCE_CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {}}})


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (
            {"name": "gpu", "resourceClaimTemplateName": "t"},
            'there is no resource claim from the template "t" for "gpu"',
        ),
        (
            {"name": "own", "resourceClaimName": "c"},
            'there is no resource claim "c" for "own"',
        ),
    ],
)
def test_a_pod_without_its_claims_is_not_looked_at(
    cluster: EmbeddedCluster, claim: TrackedPod, why: str
) -> None:
    tracker = PodTracker(cluster, lambda: 0.0, lambda _pod: "w")
    make_pod(cluster, claim)
    assert tracker.is_decided
    assert tracker.rejections("w") == {why: 1}


def test_a_pod_that_has_its_claims_is_undecided(cluster: EmbeddedCluster) -> None:
    tracker = PodTracker(cluster, lambda: 0.0, lambda _pod: "w")
    make_claim(cluster, "c")
    make_pod(cluster, {"name": "own", "resourceClaimName": "c"})
    assert not tracker.is_decided
    assert tracker.undecided() == ["1 w: not tried"]


def test_a_bar_that_does_not_fill_is_no_error() -> None:
    """Red, the usual colour of an unfinished bar, would look like one when pods stay pending as intended."""
    shown = io.StringIO()
    screen = Console(file=shown, force_terminal=True, color_system="standard", width=80)
    with pods_bound(screen, "The scheduler starts", 300) as bound:
        bound(288)
    assert "288/300" in shown.getvalue()
    assert not re.search(r"\x1b\[(?:\d+;)*(?:31|91)m", shown.getvalue())
