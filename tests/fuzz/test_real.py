"""What is called valid here is, for a real API server."""

from random import Random

import pytest

from tests.fuzz.kinds import KINDS, META
from tests.fuzz.shapes import draw
from tests.whole.real import NEEDS_REAL, RealApiServer

pytestmark = [*NEEDS_REAL]

#: Objects of each kind.
OBJECTS = 25


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with RealApiServer(tmp_path_factory.mktemp("real")).running() as running:
        yield running


#: A real API server has the kinds of pod groups only by a flag or a definition, and DeviceTaintRules in v1 from
#: Kubernetes 1.37 on.
SERVED = [kind for kind in KINDS if kind.plural not in {"podgroups", "devicetaintrules"}]


@pytest.mark.parametrize("kind", SERVED, ids=lambda kind: kind.name)
def test_most_valid_objects_are_accepted(kind, server):
    """Not all: the description does not know every rule, and admission sets the priority of pods itself."""
    path = kind.path
    if kind.namespaced:
        path = path.replace(f"/{kind.plural}", f"/namespaces/default/{kind.plural}")
    refused = []
    for seed in range(OBJECTS):
        random = Random(seed)
        metadata, body = draw(META, random), kind.body.valid(random, 0.0)
        metadata |= {"name": f"o{seed}"} | ({"namespace": "default"} if kind.namespaced else {})
        for field in ("generateName", "managedFields"):
            metadata.pop(field, None)
        for field in ("priority", "preemptionPolicy"):
            body.get("spec", {}).pop(field, None)
        value = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **body}
        code, answer = server.answer("POST", path, value)
        if code != 201:
            refused.append(answer["message"])
    assert len(refused) <= OBJECTS // 3, refused
