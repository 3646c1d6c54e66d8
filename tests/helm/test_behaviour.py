"""What the values amount to, where more than one has a part in it."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli.flags import WITHOUT_EFFECT
from app.cli.run import command as run
from app.cli.shadow import command as shadow
from app.scheduler.election.elector import LAST_ATTEMPT_SECONDS, RELEASE_SECONDS
from app.scheduler.options import RunOptions
from app.scheduler.process import LAST_EVENTS_SECONDS
from app.serving.options import ServingOptions
from tests.helm.chart import CHART, EXAMPLES, NAMESPACE, RELEASE, VALUES, Helm, Rendered, named
from tests.helm.rules import containers

FILES = {file.stem: file for file in [*VALUES, *EXAMPLES]}


def of_file(helm: Helm, name: str) -> Rendered:
    return helm.render({}, "--values", str(FILES[name]))


# ------------------------------------------------------------ configuration


def test_is_a_second_scheduler_by_default(helm: Helm) -> None:
    rendered = helm.render()
    assert [profile["schedulerName"] for profile in rendered.config["profiles"]] == [RELEASE]
    election = rendered.config["leaderElection"]
    assert election["leaderElect"] is True
    assert (election["resourceNamespace"], election["resourceName"]) == (NAMESPACE, RELEASE)


def test_replaces_the_first_when_asked_to(helm: Helm) -> None:
    rendered = of_file(helm, "replace-kube-scheduler")
    assert rendered.config["profiles"] == [{"schedulerName": "default-scheduler"}]
    election = rendered.config["leaderElection"]
    assert (election["resourceNamespace"], election["resourceName"]) == (
        "kube-system",
        "kube-scheduler",
    )
    assert rendered.pod["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert rendered.deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_the_configuration_wins_over_the_file_and_the_file_over_values(helm: Helm) -> None:
    file = (
        "apiVersion: kubescheduler.config.k8s.io/v1beta3\nparallelism: 1\npodMaxBackoffSeconds: 5"
    )
    values = {
        "configFile": f"{file}\nleaderElection: {{retryPeriod: 1s, renewDeadline: 5s}}\n",
        "config": {"parallelism": 2, "leaderElection": {"retryPeriod": "1500ms"}},
    }
    config = helm.render(values).config
    assert config["apiVersion"] == "kubescheduler.config.k8s.io/v1beta3"
    assert (config["parallelism"], config["podMaxBackoffSeconds"]) == (2, 5)
    election = config["leaderElection"]
    assert (election["retryPeriod"], election["renewDeadline"]) == ("1500ms", "5s")
    assert election["leaseDuration"] == "15s"


def test_a_false_and_a_zero_win_too(helm: Helm) -> None:
    given = {"enableProfiling": False, "clientConnection": {"qps": 0}, "parallelism": 10_000_000}
    config = helm.render({"config": given}).config
    assert config["enableProfiling"] is False
    assert config["clientConnection"] == {"qps": 0, "burst": 1000}
    assert config["parallelism"] == 10_000_000


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_both_documents_of_a_file_are_read(helm: Helm, end: str) -> None:
    lines = ["---", "parallelism: 3", "--- # ours", "kind: AiokubeSchedulerConfiguration"]
    rendered = helm.render({"configFile": end.join([*lines, "maxBindingsInFlight: 4", "---", ""])})
    assert rendered.config["parallelism"] == 3
    assert rendered.extension == {
        "apiVersion": "aiokube-scheduler.io/v1alpha1",
        "kind": "AiokubeSchedulerConfiguration",
        "maxBindingsInFlight": 4,
    }


def test_extenders_of_file_configuration_and_values_come_together(helm: Helm) -> None:
    rendered = of_file(helm, "config-file")
    urls = ["http://first.example.svc", "http://second.example.svc"]
    assert [each["urlPrefix"] for each in rendered.config["extenders"]] == urls
    assert rendered.extension is not None
    assert [each["urlPrefix"] for each in rendered.extension["extenders"]] == urls
    assert rendered.extension["maxBindingsInFlight"] == 17


@pytest.mark.parametrize(
    ("profiles", "names"),
    [
        ([{"percentageOfNodesToScore": 5}], [RELEASE]),
        ([{"schedulerName": "a"}, {"schedulerName": "b"}], ["a", "b"]),
        ([{"schedulerName": "default-scheduler"}], ["default-scheduler"]),
    ],
)
def test_a_lone_profile_gets_the_chart_s_name(
    helm: Helm, profiles: list[dict[str, Any]], names: list[str]
) -> None:
    rendered = helm.render({"config.profiles": profiles})
    assert [profile["schedulerName"] for profile in rendered.config["profiles"]] == names
    assert rendered.one("Pod")["spec"]["schedulerName"] == names[0]


def test_pods_are_replaced_when_the_configuration_changes(helm: Helm) -> None:
    def checksum(values: dict[str, Any]) -> str:
        metadata = helm.render(values).deployment["template"]["metadata"]
        return str(metadata["annotations"]["checksum/config"])

    assert checksum({}) == checksum({"podAnnotations": {"a": "b"}})
    assert len({checksum({}), *map(checksum, CHANGES)}) == len(CHANGES) + 1


CHANGES = (
    {"schedulerName": "a"},
    {"config": {"parallelism": 1}},
    {"aiokubeConfig": {"maxBindingsInFlight": 1}},
    {"configFile": "podMaxBackoffSeconds: 7"},
    {"extenders": [{"name": "a", "url": "http://a"}]},
)


# ------------------------------------------------------------ election


@pytest.mark.parametrize("where", ["leaderElection", "config.leaderElection", "configFile"])
def test_rights_follow_the_lease_wherever_it_is_named(helm: Helm, where: str) -> None:
    lease = {"resourceName": "mine", "resourceNamespace": "there"}
    text = yaml.safe_dump({"leaderElection": lease})
    rendered = helm.render({where: text if where == "configFile" else lease})
    role, binding = rendered.one("Role"), rendered.one("RoleBinding")
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "there"
    named_rules = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert named_rules == [["mine"]]


def test_there_are_no_rights_on_leases_without_election(helm: Helm) -> None:
    rendered = helm.render({"leaderElection.enabled": False, "replicaCount": 1})
    assert rendered.config["leaderElection"]["leaderElect"] is False
    assert rendered.all("Role") == rendered.all("RoleBinding") == []


def test_the_grace_period_suffices_for_the_shutdown(helm: Helm) -> None:
    bindings = RunOptions().shutdown_seconds
    ends = LAST_ATTEMPT_SECONDS, RELEASE_SECONDS, LAST_EVENTS_SECONDS, ServingOptions().grace
    longest = bindings + bindings / 2 + sum(ends)
    assert longest < helm.render().pod["terminationGracePeriodSeconds"] == 30


# ------------------------------------------------------------ availability


@pytest.mark.parametrize("replicas", [0, 1])
def test_there_is_no_budget_for_one(helm: Helm, replicas: int) -> None:
    assert helm.render({"replicaCount": replicas}).all("PodDisruptionBudget") == []


@pytest.mark.parametrize(
    ("replicas", "budget"),
    [(2, {"minAvailable": 1}), (3, {"minAvailable": "34%"}), (5, {"maxUnavailable": "20%"})],
)
def test_a_budget_always_allows_a_drain(helm: Helm, replicas: int, budget: dict[str, Any]) -> None:
    rendered = helm.render({"replicaCount": replicas, "podDisruptionBudget": budget})
    spec = rendered.one("PodDisruptionBudget")["spec"]
    assert budget.items() <= spec.items()
    assert ("minAvailable" in spec) != ("maxUnavailable" in spec)
    assert spec["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_a_standby_without_caches_does_not_hold_up_rollouts(helm: Helm) -> None:
    probe = of_file(helm, "standby-without-cache").container["readinessProbe"]
    assert probe["httpGet"]["path"] == "/livez"
    assert helm.render().container["readinessProbe"]["httpGet"]["path"] == "/readyz"


@pytest.mark.parametrize("how", ["soft", "hard", "none"])
def test_replicas_avoid_each_other(helm: Helm, how: str) -> None:
    node = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    affinity = helm.render({"podAntiAffinity": how, "affinity": node}).pod["affinity"]
    assert affinity["nodeAffinity"] == node["nodeAffinity"]
    field = {"soft": "preferred", "hard": "required"}.get(how)
    found = affinity.get("podAntiAffinity", {})
    assert [name.partition("During")[0] for name in found] == ([field] if field else [])


def test_an_anti_affinity_of_one_s_own_counts_alone(helm: Helm) -> None:
    own = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    assert helm.render({"affinity": own}).pod["affinity"] == own


def test_spread_constraints_get_this_release_s_selector(helm: Helm) -> None:
    first, second = of_file(helm, "everything").pod["topologySpreadConstraints"]
    assert first["labelSelector"]["matchLabels"]["app.kubernetes.io/instance"] == RELEASE
    assert second["labelSelector"]["matchLabels"] == {"team": "scheduling"}


# ------------------------------------------------------------ the process


@pytest.mark.parametrize("name", FILES)
def test_the_scheduler_knows_its_flags(helm: Helm, name: str) -> None:
    subcommand, *given = of_file(helm, name).container["args"]
    command = {"run": run, "shadow": shadow}[subcommand]
    command.make_context(subcommand, list(given))
    known = {option for parameter in command.params for option in parameter.opts}
    assert {flag.partition("=")[0] for flag in given} <= known - WITHOUT_EFFECT.keys()


def test_only_the_scheduler_can_speak_to_the_api_server(helm: Helm) -> None:
    pod = of_file(helm, "everything").pod
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    holders = [
        container["name"]
        for container in containers(pod)
        if token in [mount["mountPath"] for mount in container.get("volumeMounts", ())]
    ]
    assert holders == ["scheduler"]
    sources = named(pod["volumes"], "kube-api-access")["projected"]["sources"]
    files = {"token", "ca.crt", "namespace"}
    assert {_file_of(source) for source in sources} == files


def _file_of(source: dict[str, Any]) -> str:
    ((kind, value),) = source.items()
    path: str = value["path"] if kind == "serviceAccountToken" else value["items"][0]["path"]
    return path


def test_nothing_is_served_without_a_port(helm: Helm) -> None:
    rendered = of_file(helm, "no-endpoints")
    assert rendered.all("Service") == []
    assert not rendered.container.keys() & {"ports", "livenessProbe", "readinessProbe"}
    assert "--secure-port=0" in rendered.container["args"]
    assert "ingress" not in rendered.one("NetworkPolicy")["spec"]


@pytest.mark.parametrize(
    ("values", "secret"),
    [
        ({"tls.secretName": "mine"}, "mine"),
        ({"tls.certManager": {"enabled": True, "issuerRef": {"name": "a"}}}, f"{RELEASE}-tls"),
    ],
)
def test_a_serving_certificate_is_mounted_and_used(
    helm: Helm, values: dict[str, Any], secret: str
) -> None:
    rendered = helm.render(values)
    mounts = rendered.container["volumeMounts"]
    directory = named(mounts, "serving-certificate")["mountPath"]
    volume = named(rendered.pod["volumes"], "serving-certificate")
    assert volume["secret"]["secretName"] == secret
    for flag, key in (("--tls-cert-file", "tls.crt"), ("--tls-private-key-file", "tls.key")):
        assert f"{flag}={directory}/{key}" in rendered.container["args"]
    for certificate in rendered.all("Certificate"):
        assert certificate["spec"]["secretName"] == secret


_ISSUED = {"tls.certManager": {"enabled": True, "issuerRef": {"name": "a"}}}
_CA = {"secret": {"name": f"{RELEASE}-tls", "key": "ca.crt"}}
_OTHER_CA = {"configMap": {"name": "roots", "key": "ca.crt"}}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {}),
        (_ISSUED, {"ca": _CA}),
        ({"tls.secretName": "mine"}, {}),
        ({**_ISSUED, "serviceMonitor.namespace": "monitoring"}, {}),
        ({**_ISSUED, "serviceMonitor.tlsConfig": {"ca": _OTHER_CA}}, {"ca": _OTHER_CA}),
        ({"serviceMonitor.tlsConfig": {"serverName": "s"}}, {"serverName": "s"}),
    ],
)
def test_prometheus_verifies_the_certificate(
    helm: Helm, values: dict[str, Any], expected: dict[str, Any]
) -> None:
    rendered = helm.render({"serviceMonitor.enabled": True, **values})
    name = f"{rendered.one('Service')['metadata']['name']}.{NAMESPACE}.svc"
    for endpoint in rendered.one("ServiceMonitor")["spec"]["endpoints"]:
        assert endpoint["tlsConfig"] == {"serverName": name} | expected


def test_prometheus_verifies_nothing_when_told_so(helm: Helm, tmp_path: Path) -> None:
    values = {"serviceMonitor.enabled": True}
    assert "no authority is given" in notes(helm, tmp_path / "verified", values)
    values["serviceMonitor.tlsConfig"] = {"insecureSkipVerify": True}
    for endpoint in helm.render(values).one("ServiceMonitor")["spec"]["endpoints"]:
        assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}
    assert "no authority is given" not in notes(helm, tmp_path / "told", values)


def test_a_digest_wins_over_a_tag(helm: Helm) -> None:
    assert of_file(helm, "everything").container["image"].startswith("aiokube-scheduler@sha256:")
    assert helm.render({"image.tag": "7"}).container["image"] == "aiokube-scheduler:7"


@pytest.mark.parametrize("release", ["123", "a-release-whose-name-is-nearly-as-long-as-can-be-53"])
def test_any_release_name_will_do(helm: Helm, release: str) -> None:
    rendered = helm.render(release=release)
    assert rendered.deployment["selector"]["matchLabels"]["app.kubernetes.io/instance"] == release
    assert len(rendered.one("Service")["metadata"]["name"]) <= 63


# ------------------------------------------------------------ extenders


def test_a_remote_extender_gets_its_files(helm: Helm) -> None:
    rendered = of_file(helm, "extender-url")
    (extender,) = rendered.config["extenders"]
    assert rendered.extension is not None
    (options,) = rendered.extension["extenders"]
    assert extender["urlPrefix"] == options["urlPrefix"]
    assert extender["enableHTTPS"] is True
    tls = extender["tlsConfig"]
    mounted = {mount["mountPath"]: mount["name"] for mount in rendered.container["volumeMounts"]}
    for file in (tls["caFile"], tls["certFile"], tls["keyFile"]):
        assert mounted[file.rpartition("/")[0]] == "extender-gpu-tls"
    directory, _, name = options["bearerTokenFile"].rpartition("/")
    (source,) = named(rendered.pod["volumes"], mounted[directory])["projected"]["sources"]
    assert source["serviceAccountToken"] == {
        "path": name,
        "audience": "gpu-extender",
        "expirationSeconds": 3600,
    }


def test_a_token_of_a_secret_is_mounted(helm: Helm) -> None:
    rendered = of_file(helm, "everything")
    assert rendered.extension is not None
    files = {each["urlPrefix"]: each["bearerTokenFile"] for each in rendered.extension["extenders"]}
    directory, _, key = files["http://127.0.0.1:8888"].rpartition("/")
    mounted = {mount["mountPath"]: mount["name"] for mount in rendered.container["volumeMounts"]}
    volume = named(rendered.pod["volumes"], mounted[directory])
    assert (key, volume["secret"]) == ("secret", {"secretName": "beside-token"})


def test_a_sidecar_is_there_before_and_after_the_scheduler(helm: Helm) -> None:
    rendered = of_file(helm, "everything")
    wait, sidecar = rendered.pod["initContainers"]
    assert wait["name"] == "wait"
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("extender-beside", "Always")
    assert sidecar["securityContext"]["runAsUser"] == 1000
    assert sidecar["securityContext"]["readOnlyRootFilesystem"] is True
    assert not sidecar.keys() & {"port", "path"}
    assert rendered.config["extenders"][0]["urlPrefix"] == "http://127.0.0.1:8888"


def test_settings_of_an_extender_win_over_what_the_chart_makes(helm: Helm) -> None:
    extender = {
        "name": "one",
        "url": "https://one.example.svc",
        "tls": {"secretName": "a", "serverName": "two"},
        "config": {"enableHTTPS": False, "tlsConfig": {"caFile": ""}},
    }
    (entry,) = helm.render({"extenders": [extender]}).config["extenders"]
    assert entry["enableHTTPS"] is False
    assert entry["tlsConfig"] == {"caFile": "", "serverName": "two"}


# ------------------------------------------------------------ notes


def notes(helm: Helm, directory: Path, values: dict[str, Any]) -> str:
    """What ``helm install`` says in the end. It asks a cluster first; so the notes are rendered as an object's text."""
    copy = shutil.copytree(CHART, directory / CHART.name)
    (copy / "templates" / "NOTES.txt").rename(copy / "notes.tpl")
    template = '{"kind": "Notes", "text": {{ tpl (.Files.Get "notes.tpl") . | toJson }}}'
    (copy / "templates" / "notes.yaml").write_text(template)
    rendered = helm.render(values, "--show-only", "templates/notes.yaml", chart=copy)
    text: str = rendered.one("Notes")["text"]
    return text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, "spec.schedulerName is aiokube-scheduler."),
        ({}, "kubectl -n kube-system get lease aiokube-scheduler"),
        (
            {"config.profiles": [{"schedulerName": "a"}, {"schedulerName": "b"}]},
            "spec.schedulerName is a or b.",
        ),
        ({"replicaCount": 0}, "nothing is scheduled"),
        ({"schedulerName": "default-scheduler"}, "with a lease of its own"),
        (
            {"schedulerName": "default-scheduler", "leaderElection.resourceName": "kube-scheduler"},
            "shares the lease of kube-scheduler",
        ),
        (
            {
                "schedulerName": "default-scheduler",
                "replicaCount": 1,
                "leaderElection.enabled": False,
            },
            "without leader election",
        ),
        (
            {"extenders": [{"name": "a", "url": "https://user:secret@a.example.svc"}]},
            "no CA is given for the extender https://a.example.svc",
        ),
        ({"serviceMonitor.enabled": True}, "Prometheus needs the right"),
    ],
)
def test_the_notes_say_so(helm: Helm, tmp_path: Path, values: dict[str, Any], said: str) -> None:
    assert said in notes(helm, tmp_path, values)


def test_the_notes_warn_of_nothing_by_default(helm: Helm, tmp_path: Path) -> None:
    assert "WARNING" not in notes(helm, tmp_path, {})
