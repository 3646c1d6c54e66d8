from pathlib import Path

import pytest
from aiokube_scheduler.extenders.kit.testing import serving
from racks import application

pytest_plugins = ["aiokube_scheduler.testing"]

CLUSTER = Path(__file__).with_name("cluster.yaml").read_text()


@pytest.fixture
def extender():
    with serving(application(Path(__file__).with_name("racks.json"))) as url:
        yield {
            "urlPrefix": url,
            "filterVerb": "filter",
            "prioritizeVerb": "prioritize",
            "weight": 5,
        }


def test_the_coolest_rack_is_preferred(embedded_cluster, scheduler, extender):
    scheduler(extenders=[extender])
    embedded_cluster.create(CLUSTER)
    assert embedded_cluster.node_of("web") == "node-1"


def test_a_warm_rack_is_avoided(embedded_cluster, scheduler, extender):
    scheduler(extenders=[extender])
    embedded_cluster.create(CLUSTER)
    assert "1 the rack has 41 degrees" in embedded_cluster.why_pending("large")
