"""The user's configuration stays what it is, but for what an embedded cluster needs."""

import pytest

from app.settings.problems import ConfigurationError
from app.tools.simulate.configuration import configured

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
FULL = f"""{HEAD}
clientConnection: {{kubeconfig: /home/me/.kube/config, qps: 7}}
leaderElection: {{resourceName: mine}}
podInitialBackoffSeconds: 3
profiles:
- schedulerName: one
  pluginConfig:
  - name: NodeResourcesFit
    args: {{ignoredResources: [example.com/a], scoringStrategy: {{type: MostAllocated, resources: [{{name: cpu}}]}}}}
- schedulerName: two
  plugins: {{score: {{disabled: [{{name: ImageLocality}}]}}}}
extenders:
- urlPrefix: https://licences.example
  filterVerb: filter
  tlsConfig: {{keyData: a2V5, certData: Y2VydA==}}
  managedResources:
  - {{name: example.com/licence, ignoredByScheduler: true}}
  - {{name: example.com/a, ignoredByScheduler: true}}
---
apiVersion: aiokube-scheduler.io/v1alpha1
kind: AiokubeSchedulerConfiguration
extenders:
- urlPrefix: https://licences.example
  serial: true
  dryRun: {{filterVerb: filter-dryrun, nodeCacheCapable: true}}
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(FULL)
    return path


def test_the_rest_of_the_file_holds(file):
    found = configured(file, extenders=True)
    assert found.settings.configuration.pod_initial_backoff_seconds == 3
    assert found.schedulers == ("one", "two")
    assert found.calls_extenders


def test_extenders_are_kept_with_their_secrets_when_wanted(file):
    found = configured(file, extenders=True)
    settings = found.settings
    ((extender, options),) = settings.extenders
    assert extender.tls_config.key_pem == b"key"
    assert options.serial is True
    assert found.left_out == ()


def test_extenders_are_asked_by_their_dry_run_and_by_nothing_else(tmp_path):
    path = tmp_path / "config.yaml"
    second = FULL.partition("---")[2].replace(
        "dryRun: {", "releaseVerb: r\n  groupVerb: g\n  dryRun: {"
    )
    first = FULL.partition("---")[0].replace(
        "  filterVerb: filter", "  filterVerb: filter\n  bindVerb: b"
    )
    first += "- {urlPrefix: http://reserves.example, filterVerb: f, prioritizeVerb: p, weight: 1}\n"
    path.write_text(f"{first}---{second}")
    found = configured(path, extenders=True)
    assert found.left_out == ("http://reserves.example",)
    (one, options), (other, none) = found.settings.extenders
    assert (one.filter_verb, one.bind_verb, one.node_cache_capable) == ("filter-dryrun", "", True)
    assert (options.release_verb, options.group_verb, options.serial) == ("", "", True)
    assert [other.filter_verb, other.prioritize_verb, none.url_prefix] == ["", "", ""]
    ignored = found.settings.ignored_by_scheduler("one")
    assert ignored == {"example.com/licence", "example.com/a"}


def test_extenders_without_a_dry_run_are_not_asked(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(
        FULL.replace("  dryRun: {filterVerb: filter-dryrun, nodeCacheCapable: true}\n", "")
    )
    found = configured(path, extenders=True)
    assert found.left_out == ("https://licences.example",)
    assert not found.calls_extenders


def test_without_extenders_their_resources_stay_unchecked(file):
    found = configured(file, extenders=False)
    settings = found.settings
    assert found.left_out == ("https://licences.example",)
    assert settings.extenders == ()
    assert not found.calls_extenders
    one, two = (profile.args["NodeResourcesFit"] for profile in settings.configuration.profiles)
    assert one.ignored_resources == ("example.com/a", "example.com/licence")
    assert one.scoring_strategy.type == "MostAllocated"
    assert two.ignored_resources == ("example.com/a", "example.com/licence")


def test_the_defaults_without_a_file():
    found = configured(None, extenders=False)
    assert found.schedulers == ("default-scheduler",)
    assert (found.left_out, found.warnings) == ((), ())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("parallelism: 0", "parallelism"),
        ("profiles: [{plugins: {filter: {enabled: [{name: Nobody}]}}}]", "Nobody"),
    ],
    ids=["value", "plugin"],
)
def test_mistakes_are_told_before_anything_runs(tmp_path, text, problem):
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(ConfigurationError, match=problem):
        configured(path, extenders=False)
