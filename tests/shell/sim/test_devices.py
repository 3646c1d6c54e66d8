"""The kinds of resource.k8s.io/v1: defaults, what is refused and where, what may change."""

import pytest

from app.model.devices import FINALIZER
from app.sim.api import MERGE_PATCH, Api
from app.sim.errors import ApiError
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import (
    DEVICE_CLASSES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from tests.shell.sim.client import pod
from tests.shell.sim.device_mistakes import (
    BAD_CLASSES,
    BAD_REQUESTS,
    BAD_SLICES,
    BAD_STATUS,
    GOOD_SLICES,
    GOOD_STATUS,
    allocated,
    alternatives,
    amount,
    asking,
    consumer,
    device,
    expected,
    offering,
    request,
    result,
    spoken,
    told,
)


@pytest.fixture
def api():
    made = Api(now=lambda: 0.0)
    made.create(NAMESPACES, "", {"metadata": {"name": "default"}})
    return made


def make(api, kind, spec, name="x", **metadata):
    namespace = "default" if kind.namespaced else ""
    return api.create(kind, namespace, {"metadata": {"name": name, **metadata}, "spec": spec}).value


def change(api, kind, patch, subresource=""):
    namespace = "default" if kind.namespaced else ""
    return api.patch(kind, namespace, "x", patch, patch_type=MERGE_PATCH, subresource=subresource)[
        0
    ].value


def set_status(api, **status):
    return change(api, RESOURCE_CLAIMS, {"status": status}, "status")


def mistakes(refused):
    """What a request is refused for: (path, reason), sorted."""
    with pytest.raises(ApiError) as caught:
        refused()
    return told(caught.value.status())


# ---------------------------------------------------------------- what is asked for


def test_requests_are_filled_in(api) -> None:
    tolerations = [{"key": "a", "value": "b"}, {"operator": "Exists"}]
    spec = asking(
        request(tolerations=tolerations),
        {"name": "all", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
        alternatives("s", "t", count=2) | {"name": "f"},
    )
    found = make(api, RESOURCE_CLAIMS, spec)
    template = make(api, RESOURCE_CLAIM_TEMPLATES, {"spec": spec})
    assert found["spec"] == template["spec"]["spec"]
    assert found["status"] == {}
    first, whole, choice = found["spec"]["devices"]["requests"]
    assert (first["exactly"]["allocationMode"], first["exactly"]["count"]) == ("ExactCount", 1)
    operators = [each["operator"] for each in first["exactly"]["tolerations"]]
    assert operators == ["Equal", "Exists"]
    assert "count" not in whole["exactly"]
    wanted = [(each["allocationMode"], each["count"]) for each in choice["firstAvailable"]]
    assert wanted == [("ExactCount", 2)] * 2


@pytest.mark.parametrize(("spec", "wrong"), BAD_REQUESTS)
def test_bad_requests(api, spec, wrong) -> None:
    """In a claim, and in a template, where it lies deeper; whether access is granted is told of either as of a
    claim.
    """
    found = mistakes(lambda: make(api, RESOURCE_CLAIMS, spec))
    assert found == expected(wrong, "spec.devices.")
    deeper = mistakes(lambda: make(api, RESOURCE_CLAIM_TEMPLATES, {"spec": spec}))
    root = "spec.devices." if "adminAccess" in wrong else "spec.spec.devices."
    assert deeper == expected(wrong, root)


def test_labels_have_no_dots(api) -> None:
    with pytest.raises(ApiError, match=r'Invalid value: "a\.b": must not contain dots$'):
        make(api, RESOURCE_CLAIMS, asking(request("a.b")))


def test_admin_access_needs_a_label_of_the_namespace(api) -> None:
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    api.patch(NAMESPACES, "", "default", label, patch_type=MERGE_PATCH)
    make(api, RESOURCE_CLAIMS, asking(request("a", adminAccess=True)))
    make(api, RESOURCE_CLAIM_TEMPLATES, {"spec": asking(request(adminAccess=True))})
    set_status(api, allocation=allocated(result(adminAccess=True)))


def test_what_is_asked_for_does_not_change(api) -> None:
    make(api, RESOURCE_CLAIMS, asking(request()))
    spec = {"spec": asking(request("other", count=-1))}
    assert mistakes(lambda: change(api, RESOURCE_CLAIMS, spec)) == expected("spec invalid")
    make(api, RESOURCE_CLAIM_TEMPLATES, {"spec": asking(request())})
    labels = {"spec": {"metadata": {"labels": {"a": "b"}}}}
    refused = mistakes(lambda: change(api, RESOURCE_CLAIM_TEMPLATES, labels))
    assert refused == expected("spec invalid")
    for kind in (RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES):
        labelled = change(api, kind, {"metadata": {"labels": {"a": "b"}}})
        assert labelled["metadata"]["labels"] == {"a": "b"}


def test_templates_give_claims_labels_and_annotations_only(api) -> None:
    metadata = {"labels": {"a b": "c"}, "annotations": {"d e": "f"}, "name": "x"}
    spec = {"metadata": metadata, "spec": asking(request())}
    wrong = "spec.metadata.labels invalid, spec.metadata.annotations invalid, spec.metadata.name forbidden"
    assert mistakes(lambda: make(api, RESOURCE_CLAIM_TEMPLATES, spec)) == expected(wrong)


@pytest.mark.parametrize(("spec", "wrong"), BAD_CLASSES)
def test_bad_classes(api, spec, wrong) -> None:
    assert mistakes(lambda: make(api, DEVICE_CLASSES, spec)) == expected(wrong)


def test_what_another_server_has_taken_is_taken_over(api) -> None:
    """It may know more of the expression language."""
    selectors = [{"cel": {"expression": "nothing.known.here"}}]
    spec = {"selectors": selectors}
    value = {"metadata": {"name": "x"}, "spec": spec}
    assert api.restore(DEVICE_CLASSES, "", value).value["spec"] == spec
    assert mistakes(lambda: make(api, DEVICE_CLASSES, spec, "y")) == expected(
        "spec.selectors[0].cel.expression invalid"
    )


def test_classes_count_generations(api) -> None:
    assert make(api, DEVICE_CLASSES, {})["metadata"]["generation"] == 1
    changed = change(api, DEVICE_CLASSES, {"spec": {"extendedResourceName": "example.com/gpu"}})
    assert changed["metadata"]["generation"] == 2


# ---------------------------------------------------------------- what is offered


@pytest.mark.parametrize("spec", GOOD_SLICES)
def test_good_slices(api, spec) -> None:
    assert make(api, RESOURCE_SLICES, spec)["metadata"]["generation"] == 1


@pytest.mark.parametrize(("spec", "wrong"), BAD_SLICES)
def test_bad_slices(api, spec, wrong) -> None:
    found = mistakes(lambda: make(api, RESOURCE_SLICES, spec))
    assert found == expected(wrong, "spec.")


def test_amounts_that_are_none_are_bad_requests(api) -> None:
    spec = offering(device(capacity={"c": amount(value="much")}))
    with pytest.raises(ApiError, match="quantities must match") as caught:
        make(api, RESOURCE_SLICES, spec)
    assert caught.value.code == 400


def test_slices_keep_driver_pool_and_node(api) -> None:
    make(api, RESOURCE_SLICES, offering(device()))
    moved = {"spec": {"driver": "d", "nodeName": "m", "pool": {"name": "q"}}}
    wrong = "spec.driver invalid, spec.nodeName invalid, spec.pool.name invalid"
    assert mistakes(lambda: change(api, RESOURCE_SLICES, moved)) == expected(wrong)
    taint = {"key": "a", "effect": "NoSchedule"}
    spec = {"devices": [device("e", taints=[taint])], "pool": {"generation": 2}}
    changed = change(api, RESOURCE_SLICES, {"spec": spec})
    assert changed["metadata"]["generation"] == 2
    (found,) = changed["spec"]["devices"]
    assert found["taints"] == [taint | {"timeAdded": "1970-01-01T00:00:00Z"}]


# ---------------------------------------------------------------- what is allocated


@pytest.fixture
def claimed(api):
    """An API with a claim ``x`` that has the requests ``a``, and ``r`` with alternatives."""
    make(api, RESOURCE_CLAIMS, asking(request("a"), alternatives("s")))
    return api


@pytest.mark.parametrize("status", GOOD_STATUS)
def test_good_status(claimed, status) -> None:
    assert set_status(claimed, **status)["status"].keys() == status.keys()


@pytest.mark.parametrize(("status", "wrong"), BAD_STATUS)
def test_bad_status(claimed, status, wrong) -> None:
    found = mistakes(lambda: set_status(claimed, **status))
    assert found == expected(wrong, "status.")


def test_an_allocation_is_written_and_removed_as_a_whole(claimed) -> None:
    set_status(claimed, allocation=allocated(result()), reservedFor=[consumer()])
    other = {"devices": {"results": [result(device="e")]}}
    refused = mistakes(lambda: set_status(claimed, allocation=other))
    assert refused == expected("status.allocation invalid")
    refused = mistakes(lambda: set_status(claimed, allocation=None))
    assert refused == expected("status.reservedFor forbidden")
    assert set_status(claimed, allocation=None, reservedFor=None)["status"] == {}
    assert set_status(claimed, allocation=other)["status"] == {"allocation": other}


def test_what_drivers_said_goes_with_the_device(claimed) -> None:
    set_status(claimed, allocation=allocated(result()), devices=[spoken()])
    assert set_status(claimed, allocation=None)["status"] == {}


def test_a_status_changes_nothing_else(claimed) -> None:
    before = claimed.get(RESOURCE_CLAIMS, "default", "x").value
    patch = {
        "metadata": {"labels": {"a": "b"}, "finalizers": [FINALIZER]},
        "spec": asking(request("other")),
        "status": {"allocation": allocated(result())},
    }
    after = change(claimed, RESOURCE_CLAIMS, patch, "status")
    assert after["spec"] == before["spec"]
    assert after["metadata"].keys() == before["metadata"].keys()
    unchanged = change(claimed, RESOURCE_CLAIMS, {"status": {"allocation": None}})
    assert unchanged["status"] == after["status"]


def test_a_claim_that_is_on_its_way_out_gets_no_new_consumers(claimed) -> None:
    change(claimed, RESOURCE_CLAIMS, {"metadata": {"finalizers": [FINALIZER]}})
    set_status(claimed, allocation=allocated(result()), reservedFor=[consumer()])
    delete(claimed, RESOURCE_CLAIMS, "default", "x", DeleteOptions())
    more = [consumer(), consumer("2", name="q")]
    refused = mistakes(lambda: set_status(claimed, reservedFor=more))
    assert refused == expected("status.reservedFor forbidden")
    with pytest.raises(ApiError, match=r"^object is being deleted: resourceclaims"):
        make(claimed, RESOURCE_CLAIMS, asking())
    assert "reservedFor" not in set_status(claimed, reservedFor=None)["status"]
    change(claimed, RESOURCE_CLAIMS, {"metadata": {"finalizers": None}})
    assert claimed.find(RESOURCE_CLAIMS, "default", "x") is None


# ---------------------------------------------------------------- pods


def entry(name="a", **fields):
    return {"name": name, "resourceClaimName": "c"} | fields


@pytest.mark.parametrize(
    ("entries", "references", "wrong"),
    [
        ([entry("")], [], "resourceClaims[0].name required"),
        ([entry("A_", resourceClaimName="C_")], [], "resourceClaims[0].name invalid, resourceClaims[0].resourceClaimName invalid"),
        ([entry(), entry()], [], "resourceClaims[1].name duplicate"),
        ([{"name": "a"}], [], "resourceClaims[0] invalid"),
        ([entry(resourceClaimTemplateName="t")], [], "resourceClaims[0] invalid"),
        ([entry()], [{"name": "b"}], "containers[0].resources.claims[0] missing"),
        ([], [{"name": "b"}], "containers[0].resources.claims[0] missing"),
        ([entry()], [{}], "containers[0].resources.claims[0] required"),
        ([entry()], [{"name": "a"}, {"name": "a", "request": "r"}], "containers[0].resources.claims[1] duplicate"),
        ([entry()], [{"name": "a", "request": "r"}, {"name": "a"}], "containers[0].resources.claims[1] duplicate"),
        ([entry()], [{"name": "a", "request": "r"}, {"name": "a", "request": "r"}], "containers[0].resources.claims[1] duplicate"),
        ([entry()], [{"name": "a", "request": "R_"}], "containers[0].resources.claims[0].request invalid"),
    ],
)  # fmt: skip
def test_bad_claims_of_pods(api, entries, references, wrong) -> None:
    value = pod("p", resourceClaims=entries)
    value["spec"]["containers"][0]["resources"] = {"claims": references}
    found = mistakes(lambda: api.create(PODS, "default", value))
    assert found == expected(wrong, "spec.")


MAPPED = {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "r"}


def extended(*mappings, **fields):
    return {"extendedResourceClaimStatus": {"requestMappings": list(mappings)} | fields}


@pytest.mark.parametrize(
    ("status", "wrong"),
    [
        ({"resourceClaimStatuses": [{"name": "b"}]}, "resourceClaimStatuses[0].name invalid"),
        ({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "C_"}, {"name": "a"}]}, "resourceClaimStatuses[0].resourceClaimName invalid, resourceClaimStatuses[1].name duplicate"),
        (extended(), "extendedResourceClaimStatus.requestMappings required, extendedResourceClaimStatus.resourceClaimName required"),
        (extended(MAPPED | {"containerName": "d", "requestName": ""}, resourceClaimName="C_"), "extendedResourceClaimStatus.requestMappings[0].containerName invalid, extendedResourceClaimStatus.requestName invalid, extendedResourceClaimStatus.resourceClaimName invalid"),
        (extended(MAPPED | {"resourceName": "cpu"}, resourceClaimName="c"), "extendedResourceClaimStatus.requestMappings[0].resourceName invalid"),
        (extended(MAPPED, MAPPED, resourceClaimName="c"), ", ".join(f"extendedResourceClaimStatus.requestMappings[1].{part} duplicate" for part in MAPPED)),
    ],
)  # fmt: skip
def test_what_a_pod_is_said_to_have(api, status, wrong) -> None:
    value = pod("x", resourceClaims=[{"name": "a", "resourceClaimTemplateName": "t"}])
    value["spec"]["containers"][0]["resources"] = {"requests": {"example.com/gpu": "1"}}
    api.create(PODS, "default", value)
    found = mistakes(lambda: change(api, PODS, {"status": status}, "status"))
    assert found == expected(wrong, "status.")
    good = extended(MAPPED, resourceClaimName="c") | {"resourceClaimStatuses": [{"name": "a"}]}
    assert change(api, PODS, {"status": good}, "status")["status"].keys() >= good.keys()


def test_containers_share_what_a_pod_claims(api) -> None:
    value = pod("p", resourceClaims=[entry(), {"name": "b", "resourceClaimTemplateName": "t"}])
    references = [{"name": "a", "request": "r"}, {"name": "a", "request": "s"}, {"name": "b"}]
    value["spec"]["containers"][0]["resources"] = {"claims": references}
    api.create(PODS, "default", value)
