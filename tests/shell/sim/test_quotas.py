"""What is used of quotas: counted with each write, and the same as a count of everything."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sim.api import Api
from app.sim.errors import ApiError
from app.sim.resources import quotas
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import BY_RESOURCE, NAMESPACES, PODS, RESOURCE_QUOTAS

CLAIMS = BY_RESOURCE["persistentvolumeclaims"]
HARD = ("pods", "requests.cpu", "limits.memory", "requests.storage", "count/persistentvolumeclaims")


def make_api() -> Api:
    api = Api(now=lambda: 1e9)
    for name in ("default", "other"):
        api.create(NAMESPACES, "", {"metadata": {"name": name}})
    return api


def quota(name: str, scope: str = "", **hard: str) -> dict[str, Any]:
    spec: dict[str, Any] = {"hard": hard or dict.fromkeys(HARD, "99999")}
    return {"metadata": {"name": name}, "spec": spec | ({"scopes": [scope]} if scope else {})}


def pod(name: str, cpu: int) -> dict[str, Any]:
    resources = {"requests": {"cpu": f"{cpu}m"}, "limits": {"memory": f"{cpu}Mi"}} if cpu else {}
    container = {"name": "c", "image": "i", "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def test_a_new_object_costs_the_same_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api, charged = make_api(), []
    charge = quotas.charge
    monkeypatch.setattr(quotas, "charge", lambda *args: charged.append(1) or charge(*args))
    api.create(RESOURCE_QUOTAS, "default", quota("q", pods="1000"))
    counts = []
    for index in range(100):
        charged.clear()
        api.create(PODS, "default", pod(f"p{index}", 0))
        counts.append(len(charged))
    assert set(counts) == {counts[0]}
    record = api.get(RESOURCE_QUOTAS, "default", "q")
    assert quotas.quota_status(api.quota_use, record)["used"] == {"pods": "100"}


@given(data=st.data())
def test_the_use_is_what_a_new_quota_counts(data: st.DataObject) -> None:
    api = make_api()
    for _ in range(data.draw(st.integers(1, 30))):
        name, namespace = data.draw(st.sampled_from("abc")), data.draw(NAMESPACE_NAMES)
        kind = data.draw(st.sampled_from([PODS, CLAIMS, RESOURCE_QUOTAS]))
        found = api.find(kind, namespace, name)
        try:
            if found is None:
                api.create(kind, namespace, drawn(data, kind.kind, name))
            elif data.draw(st.booleans()):
                delete(api, kind, namespace, name, DeleteOptions())
            elif kind is PODS:
                phase = data.draw(st.sampled_from(["Running", "Succeeded"]))
                status = {"metadata": {"name": name}, "status": {"phase": phase}}
                api.update(kind, namespace, name, status, subresource="status")
            else:
                api.update(kind, namespace, name, drawn(data, kind.kind, name))
        except ApiError as error:
            if error.reason not in ("Forbidden", "Invalid"):
                raise
    for record in list(api.store["resourcequotas"].records.values()):
        metadata = {"name": "fresh", "namespace": record.namespace}
        fresh = api.create(RESOURCE_QUOTAS, record.namespace, record.value | {"metadata": metadata})
        assert api.quota_use.of(record) == api.quota_use.of(fresh)
        delete(api, RESOURCE_QUOTAS, record.namespace, "fresh", DeleteOptions())
    for record in list(api.store["resourcequotas"].records.values()):
        delete(api, RESOURCE_QUOTAS, record.namespace, record.name, DeleteOptions())
    assert api.quota_use._totals == {}


NAMESPACE_NAMES = st.sampled_from(["default", "other"])


def drawn(data: st.DataObject, kind: str, name: str) -> dict[str, Any]:
    number = data.draw(st.integers(0, 3))
    if kind == "Pod":
        return pod(name, number)
    if kind == "PersistentVolumeClaim":
        return {
            "metadata": {"name": name},
            "spec": {"resources": {"requests": {"storage": f"{number}Gi"}}},
        }
    scope = data.draw(st.sampled_from(["", "BestEffort", "NotTerminating"]))
    return quota(name, scope, **({"pods": str(number)} if number else {}))
