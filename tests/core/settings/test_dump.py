import yaml

from app.settings.dump import extension_to_dict, to_dict, to_yaml
from app.settings.fieldtext import redact_url
from app.settings.load import load
from tests.core.settings.kit import HEAD, loaded, with_extension

SECRETIVE = with_extension(
    """\
    leaderElection: {leaseDuration: 90s}
    profiles:
    - schedulerName: a
      percentageOfNodesToScore: 0
      plugins:
        multiPoint: {disabled: [{name: ImageLocality}]}
        score: {enabled: [{name: NodeResourcesFit, weight: 5}]}
      pluginConfig:
      - {name: Mine, args: {keep: ~, empty: [], key: keyData}}
      - name: NodeAffinity
        args:
          addedAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
              nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {}]
    extenders:
    - urlPrefix: https://user:password@gpu/x
      filterVerb: f
      httpTimeout: 10000000000
      tlsConfig: {keyData: c2VjcmV0LWtleQ==, certData: cHVibGlj, caFile: /ca}
    """,
    "extenders: [{urlPrefix: 'https://user:password@gpu/x', serial: true}]\n",
)


def test_the_defaults_are_spelt_out():
    dumped = to_dict(loaded().settings)
    assert dumped["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert dumped["kind"] == "KubeSchedulerConfiguration"
    assert dumped["leaderElection"]["leaseDuration"] == "15s"
    (profile,) = dumped["profiles"]
    assert profile["schedulerName"] == "default-scheduler"
    assert list(profile["plugins"]) == ["multiPoint"]
    assert profile["plugins"]["multiPoint"]["enabled"][4] == {
        "name": "TaintToleration",
        "weight": 3,
    }
    assert [entry["name"] for entry in profile["pluginConfig"]] == [
        "DefaultPreemption",
        "DynamicResources",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "PodTopologySpread",
        "VolumeBinding",
    ]
    assert profile["pluginConfig"][0]["args"] == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "DefaultPreemptionArgs",
        "minCandidateNodesPercentage": 10,
        "minCandidateNodesAbsolute": 100,
    }
    assert "extenders" not in dumped


def test_arguments_of_disabled_plugins_are_not_added():
    text = HEAD + "profiles: [{plugins: {multiPoint: {disabled: [{name: VolumeBinding}]}}}]\n"
    names = [entry["name"] for entry in to_dict(load(text).settings)["profiles"][0]["pluginConfig"]]
    assert "VolumeBinding" not in names


def test_no_secret_is_shown():
    text = to_yaml(load(SECRETIVE).settings)
    assert "c2VjcmV0" not in text
    assert "password" not in text
    assert "https://REDACTED@gpu/x" in text
    dumped = to_dict(load(SECRETIVE).settings)
    assert dumped["extenders"][0]["tlsConfig"] == {
        "insecure": False,
        "caFile": "/ca",
        "certData": "cHVibGlj",
        "keyData": "REDACTED",
    }
    assert "c2VjcmV0" not in repr(load(SECRETIVE).settings)


def test_a_redacted_dump_can_be_read_again():
    assert load(to_yaml(load(SECRETIVE).settings)).settings.extension.extenders[0].serial is True


def test_what_is_dumped_is_read_back_the_same():
    settings = load(SECRETIVE).settings
    text = to_yaml(settings, redact=False)
    again = load(text)
    assert again.warnings == ()
    assert to_yaml(again.settings, redact=False) == text
    assert again.settings.extension == settings.extension
    assert again.settings.configuration.extenders == settings.configuration.extenders
    assert again.settings.configuration.leader_election == settings.configuration.leader_election
    assert again.to_plain() == load(SECRETIVE).to_plain()


def test_opaque_arguments_come_back_untouched():
    (profile,) = to_dict(load(SECRETIVE).settings)["profiles"]
    assert profile["pluginConfig"][0] == {
        "name": "Mine",
        "args": {"keep": None, "empty": [], "key": "keyData"},
    }


def test_the_second_document_is_written_only_if_it_says_something():
    assert len(list(yaml.safe_load_all(to_yaml(loaded().settings)))) == 1
    documents = list(yaml.safe_load_all(to_yaml(load(SECRETIVE).settings)))
    assert [document["kind"] for document in documents] == [
        "KubeSchedulerConfiguration",
        "AiokubeSchedulerConfiguration",
    ]
    assert extension_to_dict(loaded().settings) == {
        "apiVersion": "aiokube-scheduler.io/v1alpha1",
        "kind": "AiokubeSchedulerConfiguration",
        "maxBindingsInFlight": 32,
        "refuseInsecureTLS": False,
        "requeueEndpoint": {"enabled": False},
        "extenderBodies": {"calls": 0, "maxBytes": 16384},
    }


def test_urls():
    assert redact_url("http://a/b") == "http://a/b"
    assert redact_url("http://u@a/b") == "http://REDACTED@a/b"
    assert redact_url("http://u:p@a:80/b@c") == "http://REDACTED@a:80/b@c"
