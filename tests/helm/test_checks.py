"""The checks that the chart's tests make do find what they look for."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.helm.chart import Helm, Rendered
from tests.helm.kubernetes_schema import mistakes
from tests.helm.rules import broken_references, unrestricted

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"containers": [{"name": "c", "imagee": "i"}]}, "imagee: no such field"),
        ({"containers": [{"image": "i"}]}, "`name`, must not be `None`"),
        ({"containers": [{"name": 1}]}, "1 is no str"),
        ({"containers": {"name": "c"}}, "is no list"),
        ({"hostNetwork": "yes"}, '"yes" is no bool'),
        ({"terminationGracePeriodSeconds": True}, "true is no int"),
        ({"nodeSelector": {"a": 1}}, "1 is no str"),
        ({"nodeSelector": []}, "is no map"),
        ({"affinity": None}, "affinity: null"),
    ],
)
def test_the_schema_refuses(change: dict[str, Any], said: str) -> None:
    (found,) = mistakes({**POD, "spec": {**POD["spec"], **change}})
    assert said in found


def test_the_schema_knows_its_kinds() -> None:
    assert mistakes(POD) == []
    assert mistakes({**POD, "kind": "Pot"}) == ["Pot: no such kind in v1"]
    monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {}}
    assert len(mistakes({**monitor, "spec": {"endpoint": []}})) == 3


def break_selector(objects: dict[str, Any]) -> None:
    objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]["a"] = "b"


def break_role(objects: dict[str, Any]) -> None:
    objects["RoleBinding"]["roleRef"]["name"] = "other"


def break_volume(objects: dict[str, Any]) -> None:
    objects["Deployment"]["spec"]["template"]["spec"]["volumes"].pop()


def break_mount(objects: dict[str, Any]) -> None:
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    container["volumeMounts"].pop()


def break_probe(objects: dict[str, Any]) -> None:
    (container,) = objects["Deployment"]["spec"]["template"]["spec"]["containers"]
    container["livenessProbe"]["httpGet"]["port"] = "http"


def break_label(objects: dict[str, Any]) -> None:
    objects["ConfigMap"]["metadata"]["labels"]["a"] = "no good"


def break_namespace(objects: dict[str, Any]) -> None:
    del objects["ConfigMap"]["metadata"]["namespace"]


def break_account(objects: dict[str, Any]) -> None:
    objects["ServiceAccount"]["metadata"]["name"] = "other"


@pytest.mark.parametrize(
    "break_it",
    [
        break_selector,
        break_role,
        break_volume,
        break_mount,
        break_probe,
        break_label,
        break_namespace,
        break_account,
    ],
)
def test_what_does_not_fit_is_found(helm: Helm, break_it: Callable[[dict[str, Any]], None]) -> None:
    objects = helm.render().objects
    # The role for others, which is bound to nobody, is left out: then there is one object of each kind.
    own = [each for each in objects if not each["metadata"]["name"].endswith(":what-if")]
    changed = {each["kind"]: copy.deepcopy(each) for each in own}
    assert len(changed) == len(own) == len(objects) - 1
    assert broken_references(Rendered(yaml.safe_dump_all(changed.values()))) == []
    break_it(changed)
    assert len(broken_references(Rendered(yaml.safe_dump_all(changed.values())))) == 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"hostNetwork": True}, "hostNetwork"),
        ({"securityContext.privileged": True}, "scheduler: privileged"),
        ({"securityContext.allowPrivilegeEscalation": True}, "scheduler: allowPrivilegeEscalation"),
        ({"securityContext.capabilities.add": ["SYS_TIME"]}, "scheduler: capabilities"),
        ({"podSecurityContext.runAsUser": 0}, "scheduler: runAsNonRoot"),
        ({"podSecurityContext.seccompProfile.type": "Unconfined"}, "scheduler: seccompProfile"),
        ({"securityContext.readOnlyRootFilesystem": False}, "scheduler: readOnlyRootFilesystem"),
    ],
)
def test_what_is_not_restricted_is_found(helm: Helm, value: dict[str, Any], said: str) -> None:
    assert unrestricted(helm.render().pod) == []
    assert unrestricted(helm.render(value).pod) == [said]
