"""Every documented value does something, and every value is documented."""

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from tests.helm.chart import CHART, Helm, RenderError
from tests.helm.kubernetes_schema import mistakes
from tests.helm.schema import FILE as SCHEMA
from tests.helm.schema import definitions

_ROW: Final = re.compile(r"^\| `([^`]+)` \| `([^`]*)` \|", re.MULTILINE)
DOCUMENTED: Final = dict(_ROW.findall((CHART / "README.md").read_text()))
"""Value -> default, as the README says."""
DEFAULTS: Final = yaml.safe_load((CHART / "values.yaml").read_text())


@dataclasses.dataclass(frozen=True)
class Flip:
    """Another value, and what must be given for it to matter."""

    to: Any
    given: Mapping[str, Any] = dataclasses.field(default_factory=dict)


MONITOR: Final = {"serviceMonitor.enabled": True}
ALERTS: Final = {"prometheusRule.enabled": True}
DASHBOARDS: Final = {"dashboards.enabled": True}
POLICY: Final = {"networkPolicy.enabled": True}
ISSUER: Final = {"tls.certManager.issuerRef": {"name": "ca"}}
RULE: Final = {"apiGroups": ["example.com"], "resources": ["gpus"], "verbs": ["list"]}
PEER: Final = {"ipBlock": {"cidr": "10.0.0.0/8"}}
READER: Final = {"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}

FLIPS: Final[dict[str, Flip]] = {
    "schedulerName": Flip("other"),
    "mode": Flip("shadow"),
    "shadow.journalSize": Flip(7, {"mode": "shadow"}),
    "shadow.reviews": Flip(False, {"mode": "shadow"}),
    "leaderElection.enabled": Flip(False, {"replicaCount": 1}),
    "leaderElection.leaseDuration": Flip("20s"),
    "leaderElection.renewDeadline": Flip("11s"),
    "leaderElection.retryPeriod": Flip("3s"),
    "leaderElection.resourceName": Flip("other"),
    "leaderElection.resourceNamespace": Flip("other"),
    "clientConnection.qps": Flip(7),
    "clientConnection.burst": Flip(7),
    "config": Flip({"parallelism": 1}),
    "aiokubeConfig": Flip({"maxBindingsInFlight": 1}),
    "configFile": Flip("parallelism: 1"),
    "extenders": Flip([{"name": "one", "url": "http://one"}]),
    "verbosity": Flip(4),
    "logFormat": Flip("json"),
    "image.repository": Flip("elsewhere/scheduler"),
    "image.tag": Flip("2"),
    "image.digest": Flip("sha256:" + "0" * 64),
    "image.pullPolicy": Flip("Always"),
    "imagePullSecrets": Flip([{"name": "registry"}]),
    "nameOverride": Flip("other"),
    "fullnameOverride": Flip("other"),
    "commonLabels": Flip({"team": "scheduling"}),
    "replicaCount": Flip(3),
    "podAntiAffinity": Flip("none"),
    "topologySpreadConstraints": Flip(
        [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}]
    ),
    "podDisruptionBudget.enabled": Flip(False),
    "podDisruptionBudget.maxUnavailable": Flip(2),
    "podDisruptionBudget.minAvailable": Flip(1),
    "podDisruptionBudget.unhealthyPodEvictionPolicy": Flip("IfHealthyBudget"),
    "updateStrategy": Flip({"type": "Recreate"}),
    "revisionHistoryLimit": Flip(0),
    "terminationGracePeriodSeconds": Flip(99),
    "serviceAccount.create": Flip(False, {"serviceAccount.name": "own"}),
    "serviceAccount.name": Flip("own"),
    "serviceAccount.annotations": Flip({"example.com/role": "scheduler"}),
    "rbac.create": Flip(False),
    "rbac.extraClusterRules": Flip([RULE]),
    "rbac.extraRules": Flip([RULE]),
    "rbac.metricsReaders": Flip([READER]),
    "rbac.requeueCallers": Flip([READER]),
    "rbac.whatIfCallers": Flip([READER]),
    "rbac.whatIfAggregateTo": Flip(["view"]),
    "rbac.recordingReaders": Flip([READER]),
    "securePort": Flip(10260),
    "bindAddress": Flip("::"),
    "tls.secretName": Flip("serving"),
    "tls.certManager.enabled": Flip(True, ISSUER),
    "tls.certManager.issuerRef": Flip(
        {"name": "other"}, {**ISSUER, "tls.certManager.enabled": True}
    ),
    "service.enabled": Flip(False),
    "service.type": Flip("NodePort"),
    "service.port": Flip(443),
    "service.annotations": Flip({"example.com/scrape": "true"}),
    "service.labels": Flip({"example.com/scrape": "true"}),
    "serviceMonitor.enabled": Flip(True),
    "serviceMonitor.namespace": Flip("monitoring", MONITOR),
    "serviceMonitor.labels": Flip({"release": "prometheus"}, MONITOR),
    "serviceMonitor.annotations": Flip({"example.com/a": "b"}, MONITOR),
    "serviceMonitor.interval": Flip("5s", MONITOR),
    "serviceMonitor.scrapeTimeout": Flip("4s", MONITOR),
    "serviceMonitor.paths": Flip(["/metrics", "/metrics/slis"], MONITOR),
    "serviceMonitor.authorization": Flip({"credentials": {"name": "a", "key": "b"}}, MONITOR),
    "serviceMonitor.tlsConfig": Flip({"serverName": "other"}, MONITOR),
    "serviceMonitor.relabelings": Flip([{"action": "labeldrop", "regex": "pod"}], MONITOR),
    "serviceMonitor.metricRelabelings": Flip([{"action": "labeldrop", "regex": "x"}], MONITOR),
    "prometheusRule.enabled": Flip(True),
    "prometheusRule.namespace": Flip("monitoring", ALERTS),
    "prometheusRule.labels": Flip({"release": "prometheus"}, ALERTS),
    "prometheusRule.annotations": Flip({"example.com/a": "b"}, ALERTS),
    "prometheusRule.job": Flip("kube-scheduler", ALERTS),
    "prometheusRule.without": Flip(["AiokubeSchedulerIsSlow"], ALERTS),
    "dashboards.enabled": Flip(True),
    "dashboards.namespace": Flip("monitoring", DASHBOARDS),
    "dashboards.labels": Flip({"example.com/dashboard": "yes"}, DASHBOARDS),
    "dashboards.annotations": Flip({"grafana_folder": "Kubernetes"}, DASHBOARDS),
    "networkPolicy.enabled": Flip(True),
    "networkPolicy.ingressFrom": Flip([PEER], POLICY),
    "networkPolicy.apiServerTo": Flip([PEER], POLICY),
    "networkPolicy.apiServerPorts": Flip([16443], POLICY),
    "networkPolicy.extraEgress": Flip([{"to": [PEER]}], POLICY),
    "livenessProbe": Flip(None),
    "readinessProbe": Flip(None),
    "startupProbe": Flip(None),
    "podLabels": Flip({"example.com/a": "b"}),
    "podAnnotations": Flip({"example.com/a": "b"}),
    "deploymentAnnotations": Flip({"example.com/a": "b"}),
    "priorityClassName": Flip(""),
    "resources": Flip({"limits": {"memory": "1Gi"}}),
    "nodeSelector": Flip({"example.com/a": "b"}),
    "tolerations": Flip([{"operator": "Exists"}]),
    "affinity": Flip({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}),
    "hostNetwork": Flip(True),
    "dnsPolicy": Flip("Default"),
    "dnsConfig": Flip({"nameservers": ["10.0.0.10"]}),
    "podSecurityContext": Flip({"runAsUser": 1000}),
    "securityContext": Flip({"privileged": False}),
    "command": Flip(["aiokube-scheduler"]),
    "extraArgs": Flip(["--pod-max-in-unschedulable-pods-duration=1m"]),
    "extraEnv": Flip([{"name": "TZ", "value": "UTC"}]),
    "extraEnvFrom": Flip([{"secretRef": {"name": "proxy"}}]),
    "extraVolumes": Flip([{"name": "more", "emptyDir": {}}]),
    "extraVolumeMounts": Flip([{"name": "tmp", "mountPath": "/more"}]),
    "extraInitContainers": Flip([{"name": "first", "image": "first:1"}]),
    "extraContainers": Flip([{"name": "beside", "image": "beside:1"}]),
}


@pytest.mark.parametrize("path", DOCUMENTED)
def test_makes_a_difference_that_is_valid(helm: Helm, path: str) -> None:
    flip = FLIPS[path]
    rendered = helm.render({**flip.given, path: flip.to})
    assert rendered != helm.render(flip.given)
    assert [said for each in rendered.objects for said in mistakes(each)] == []


@pytest.mark.parametrize("path", DOCUMENTED)
def test_has_the_default_that_the_readme_says(path: str) -> None:
    found = DEFAULTS
    for part in path.split("."):
        found = found[part]
    assert found == yaml.safe_load(DOCUMENTED[path])


def test_the_readme_has_every_value() -> None:
    missing = [path for path in _leaves(DEFAULTS, ()) if not _documented(path)]
    assert missing == []


def test_the_schema_has_every_value_and_no_more() -> None:
    schema = json.loads(SCHEMA.read_text())
    assert set(schema["properties"]) - {"global", "enabled"} == set(DEFAULTS)
    for name, default in DEFAULTS.items():
        nested = schema["properties"][name].get("properties")
        if isinstance(default, dict) and default and nested and name not in DOCUMENTED:
            assert set(nested) == set(default), name


def test_the_schema_of_the_configuration_is_that_of_the_program() -> None:
    """If not: ``python -m tests.helm.schema``."""
    assert json.loads(SCHEMA.read_text())["definitions"] == definitions()


def _leaves(values: Mapping[str, Any], above: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name)


def _documented(path: tuple[str, ...]) -> bool:
    return any(".".join(path[: end + 1]) in DOCUMENTED for end in range(len(path)))


# ------------------------------------------------------------ what is refused

REMOTE: Final = {"name": "one", "url": "http://one.example.svc"}

REFUSED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "a value that does not exist": ({"replicas": 3}, "'replicas' not allowed"),
    "a nested value that does not exist": (
        {"podDisruptionBudget.enable": True},
        "'enable' not allowed",
    ),
    "a field of the configuration that does not exist": (
        {"config.percentageOfNodes": 5},
        "'percentageOfNodes' not allowed",
    ),
    "a field of a profile that does not exist": (
        {"config.profiles": [{"schedulerNames": "a"}]},
        "'schedulerNames' not allowed",
    ),
    "an argument of a plugin that does not exist": (
        {
            "config.profiles": [
                {"pluginConfig": [{"name": "NodeResourcesFit", "args": {"strategy": {}}}]}
            ]
        },
        "'strategy' not allowed",
    ),
    "a field of the second document that does not exist": (
        {"aiokubeConfig.maxBindings": 1},
        "'maxBindings' not allowed",
    ),
    "a number as text": ({"replicaCount": "two"}, "want integer"),
    "no duration": ({"leaderElection.retryPeriod": "2"}, "does not match pattern"),
    "a word that is none of the choices": ({"podAntiAffinity": "maybe"}, "value must be one of"),
    "replicas without election": (
        {"leaderElection.enabled": False},
        "replicaCount > 1 needs leader election",
    ),
    "replicas without election, by the configuration": (
        {"config.leaderElection.leaderElect": False},
        "replicaCount > 1 needs leader election",
    ),
    "a budget of all": (
        {"podDisruptionBudget.minAvailable": 2},
        "minAvailable=2 of 2 replicas would block every drain",
    ),
    "a budget of more than all": (
        {"podDisruptionBudget.minAvailable": 3},
        "minAvailable=3 of 2 replicas would block every drain",
    ),
    "a budget of all, in percent": (
        {"podDisruptionBudget.minAvailable": "51%"},
        "minAvailable=51% of 2 replicas would block every drain",
    ),
    "a budget of none": (
        {"podDisruptionBudget.maxUnavailable": 0},
        "maxUnavailable=0 would block every drain",
    ),
    "a budget of none, in percent": (
        {"podDisruptionBudget.maxUnavailable": "0%"},
        "maxUnavailable=0 would block every drain",
    ),
    "the namespace's default account": (
        {"serviceAccount.create": False},
        "serviceAccount.name is needed",
    ),
    "a monitor without a service": (
        {"serviceMonitor.enabled": True, "service.enabled": False},
        "serviceMonitor.enabled needs service.enabled",
    ),
    "a monitor without endpoints": (
        {"serviceMonitor.enabled": True, "securePort": 0},
        "serviceMonitor.enabled needs a securePort",
    ),
    "a certificate without an issuer": (
        {"tls.certManager.enabled": True},
        "tls.certManager.issuerRef.name is needed",
    ),
    "an extender that is nowhere": ({"extenders": [{"name": "one"}]}, "'oneOf' failed"),
    "an extender in two places": (
        {"extenders": [{**REMOTE, "sidecar": {"image": "a", "port": 1}}]},
        "'oneOf' failed",
    ),
    "two extenders of one name": ({"extenders": [REMOTE, REMOTE]}, "two are named one"),
    "an extender whose url is said twice": (
        {"extenders": [{**REMOTE, "config": {"urlPrefix": "http://two"}}]},
        "'not' failed",
    ),
    "a misspelt verb": (
        {"extenders": [{**REMOTE, "config": {"filterverb": "filter"}}]},
        "'filterverb' not allowed",
    ),
    "certificates for plain http": (
        {"extenders": [{**REMOTE, "tls": {"secretName": "a"}}]},
        "one has tls, but its url is not https",
    ),
    "a token of nothing": ({"extenders": [{**REMOTE, "bearerToken": {}}]}, "'oneOf' failed"),
    "an extender cut off": (
        {"extenders": [REMOTE], "networkPolicy.enabled": True},
        "networkPolicy would cut off extender one",
    ),
    "a name that no object can have": ({"nameOverride": "My-Sched"}, "does not match pattern"),
    "a name that no Service can have": ({"fullnameOverride": "a.b"}, "does not match pattern"),
    "a file that is no YAML": ({"configFile": "a: b: c"}, "configFile cannot be read"),
    "a file that is a list": ({"configFile": "- a"}, "configFile cannot be read"),
    "a file with two first documents": (
        {"configFile": "parallelism: 1\n---\nparallelism: 2\n"},
        "configFile has two documents",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refuses(helm: Helm, case: str) -> None:
    values, said = REFUSED[case]
    with pytest.raises(RenderError) as refused:
        helm.render(values)
    assert said in str(refused.value)


def test_refuses_kubernetes_without_native_sidecars(helm: Helm) -> None:
    with pytest.raises(RenderError, match=r"chart requires kubeVersion: >=1\.30"):
        helm.render(kube_version="1.29.9")


@pytest.mark.parametrize("name", ["global", "enabled"])
def test_can_be_part_of_another_chart(helm: Helm, name: str) -> None:
    value = {"global": {"imageRegistry": "elsewhere"}, "enabled": True}[name]
    assert helm.render({name: value}) == helm.render()
