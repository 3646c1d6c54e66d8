"""Every rule about the fields of the first document, with its text, path and line."""

import pytest

from app.settings.base import as_json
from app.settings.models import Plugins
from tests.core.settings.kit import loaded, mistakes, v1, warnings

TOP_LEVEL = {
    "parallelism 0": (
        "parallelism: 0",
        "3: parallelism: Invalid value: 0: should be an integer value greater than zero",
    ),
    "percentage below": (
        "percentageOfNodesToScore: -1",
        "3: percentageOfNodesToScore: Invalid value: -1: not in valid range [0-100]",
    ),
    "percentage above": (
        "percentageOfNodesToScore: 101",
        "3: percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
    ),
    "initial backoff 0": (
        "podInitialBackoffSeconds: 0",
        "3: podInitialBackoffSeconds: Invalid value: 0: must be greater than 0",
    ),
    "max backoff below initial, given": (
        "podInitialBackoffSeconds: 5\npodMaxBackoffSeconds: 4",
        "4: podMaxBackoffSeconds: Invalid value: 4: "
        "must be greater than or equal to PodInitialBackoffSeconds",
    ),
    "max backoff below initial, by default": (
        "podInitialBackoffSeconds: 11",
        "3: podMaxBackoffSeconds: Invalid value: 10: "
        "must be greater than or equal to PodInitialBackoffSeconds",
    ),
    "burst": (
        "clientConnection:\n  burst: -1",
        "4: clientConnection.burst: Invalid value: -1: must be non-negative",
    ),
    "lease duration": (
        "leaderElection:\n  leaseDuration: -1s\n  renewDeadline: 10s",
        '4: leaderElection.leaseDuration: Invalid value: "-1s": must be greater than zero',
        '4: leaderElection.leaseDuration: Invalid value: "10s": must be greater than `RenewDeadline`',
    ),
    "renew deadline": (
        "leaderElection: {renewDeadline: -1ms}",
        '3: leaderElection.renewDeadline: Invalid value: "-1ms": must be greater than zero',
    ),
    "retry period": (
        "leaderElection: {retryPeriod: -1h}",
        '3: leaderElection.retryPeriod: Invalid value: "-1h0m0s": must be greater than zero',
    ),
    "renew deadline as long as the lease": (
        "leaderElection:\n  renewDeadline: 15s",
        '4: leaderElection.leaseDuration: Invalid value: "15s": must be greater than `RenewDeadline`',
    ),
    "lease duration with a fraction": (
        "leaderElection:\n  leaseDuration: 10.9s\n  renewDeadline: 10.5s",
        '4: leaderElection.leaseDuration: Invalid value: "10.9s": is written to the lease in whole seconds, '
        "which must be more than renewDeadline",
    ),
    "lease duration whose whole seconds are the renew deadline": (
        "leaderElection:\n  leaseDuration: 10.9s\n  renewDeadline: 10s",
        '4: leaderElection.leaseDuration: Invalid value: "10.9s": is written to the lease in whole seconds, '
        "which must be more than renewDeadline",
    ),
    "lease duration that no lease holds": (
        "leaderElection:\n  leaseDuration: 2147483648s",
        '4: leaderElection.leaseDuration: Invalid value: "596523h14m8s": must be at most 2147483647s, '
        "which is what a lease can hold",
    ),
    "renew deadline within the jitter of the retry period": (
        "leaderElection:\n  retryPeriod: 8.5s",
        '4: leaderElection.renewDeadline: Invalid value: "10s": '
        "renewDeadline must be greater than retryPeriod*JitterFactor",
    ),
    "resource lock": (
        "leaderElection: {resourceLock: endpoints}",
        '3: leaderElection.resourceLock: Invalid value: "endpoints": '
        'resourceLock value must be "leases"',
    ),
}

PROFILES = {
    "empty name of the only profile": (
        "profiles:\n- schedulerName: ''",
        "4: profiles[0].schedulerName: Required value",
    ),
    "names missing among several": (
        "profiles:\n- schedulerName: a\n- percentageOfNodesToScore: 3\n",
        "5: profiles[1].schedulerName: Required value",
    ),
    "name twice": (
        "profiles:\n- schedulerName: a\n- schedulerName: b\n- schedulerName: a\n",
        '6: profiles[2].schedulerName: Duplicate value: {}: profiles[0] has the name "a" too',
    ),
    "percentage": (
        "profiles:\n- percentageOfNodesToScore: 101",
        "4: profiles[0].percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]",
    ),
    "two queue sorts": (
        "profiles:\n- plugins:\n    queueSort:\n      enabled: [{name: A}, {name: B}]",
        "6: profiles[0].plugins.queueSort.Enabled: Invalid value: 2: only one queue sort plugin can be enabled",
    ),
    "another queue sort": (
        """\
        profiles:
        - schedulerName: a
          plugins: {queueSort: {enabled: [{name: A}], disabled: [{name: '*'}]}}
        - schedulerName: b
          plugins: {queueSort: {enabled: [{name: B}], disabled: [{name: '*'}]}}
        - schedulerName: c
        """,
        '7: profiles[1].plugins.queueSort: Invalid value: {"Enabled":[{"Name":"B","Weight":0}],'
        '"Disabled":[{"Name":"*","Weight":0}]}: must be the same for all profiles',
        '8: profiles[2].plugins.queueSort: Invalid value: {"Enabled":null,"Disabled":null}: '
        "must be the same for all profiles",
    ),
    "other arguments for the queue sort": (
        """\
        profiles:
        - schedulerName: a
          plugins: {queueSort: {enabled: [{name: A}]}}
          pluginConfig: [{name: A, args: {x: 1}}]
        - schedulerName: b
          plugins: {queueSort: {enabled: [{name: A}]}}
          pluginConfig: [{name: A, args: {x: 2}}]
        """,
        '9: profiles[1].pluginConfig.args: Invalid value: {"x":2}: queueSort must be the same for all profiles',
    ),
    "removed plugin": (
        "profiles:\n- plugins:\n    filter:\n      enabled:\n      - name: NodeName\n      - name: EBSLimits\n",
        '8: profiles[0].plugins.filter.enabled[1]: Invalid value: "EBSLimits": was invalid in version "v1" '
        '(KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")',
    ),
    "removed plugin's arguments": (
        "profiles:\n- pluginConfig:\n  - name: GCEPDLimits",
        '5: profiles[0].pluginConfig[0]: Invalid value: "GCEPDLimits": was invalid in version "v1" '
        '(KubeSchedulerConfiguration is version "kubescheduler.config.k8s.io/v1")',
    ),
    "arguments twice": (
        "profiles:\n- pluginConfig:\n  - name: X\n  - name: Y\n  - name: X\n",
        '7: profiles[0].pluginConfig[2]: Duplicate value: "X"',
    ),
    "plugins without names": (
        "profiles:\n- plugins: {score: {enabled: [{weight: 1}], disabled: [{}]}}\n  pluginConfig:\n  - args: {}\n",
        "4: profiles[0].plugins.score.enabled[0].name: Required value",
        "4: profiles[0].plugins.score.disabled[0].name: Required value",
        "6: profiles[0].pluginConfig[0].name: Required value",
    ),
}

EXTENDERS = {
    "weight missing beside prioritizeVerb": (
        "extenders:\n- urlPrefix: http://a\n  filterVerb: f\n  prioritizeVerb: p\n",
        "6: extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
    ),
    "weight negative": (
        "extenders:\n- urlPrefix: http://a\n  prioritizeVerb: p\n  weight: -2\n",
        "6: extenders[0].weight: Invalid value: -2: must have a positive weight applied to it",
    ),
    "two binders": (
        "extenders:\n- {urlPrefix: http://a, bindVerb: b}\n- {urlPrefix: http://b, bindVerb: b}\n",
        '3: extenders: Invalid value: "found 2 extenders implementing bind": '
        "only one extender can implement bind; several can if each has managedResources, or if the second document gives them different profiles",
    ),
    "one of two binders for everything": (
        "extenders:\n- {urlPrefix: http://a, bindVerb: b, managedResources: [{name: e.com/a}]}\n"
        "- {urlPrefix: http://b, bindVerb: b}\n",
        '3: extenders: Invalid value: "found 2 extenders implementing bind": '
        "only one extender can implement bind; several can if each has managedResources, or if the second document gives them different profiles",
    ),
    "unqualified resource": (
        "extenders:\n- urlPrefix: http://a\n  filterVerb: f\n  managedResources:\n  - name: opaqueFooResource\n",
        '7: extenders[0].managedResources[0].name: Invalid value: "opaqueFooResource": '
        "is an invalid extended resource name",
    ),
    "kubernetes' own domain": (
        "extenders:\n- {urlPrefix: http://a, filterVerb: f, managedResources: [{name: kubernetes.io/foo}]}\n",
        '4: extenders[0].managedResources[0].name: Invalid value: "kubernetes.io/foo": '
        "is an invalid extended resource name",
    ),
    "no name at all": (
        "extenders:\n- {urlPrefix: http://a, filterVerb: f, managedResources: [{name: /x}]}\n",
        '4: extenders[0].managedResources[0].name: Invalid value: "/x": prefix part must be non-empty',
    ),
    "resource twice across extenders": (
        "extenders:\n- {urlPrefix: http://a, filterVerb: f, managedResources: [{name: e.com/a}]}\n"
        "- urlPrefix: http://b\n  filterVerb: f\n  managedResources:\n  - name: e.com/b\n  - name: e.com/a\n",
        '9: extenders[1].managedResources[1].name: Invalid value: "e.com/a": '
        "duplicate extender managed resource name",
    ),
    "no URL": (
        "extenders:\n- urlPrefix: 127.0.0.1:80\n  filterVerb: f\n- urlPrefix: http://me:pw@[::1\n",
        '4: extenders[0].urlPrefix: Invalid value: "127.0.0.1:80": must be an http:// or https:// URL with a host',
        '6: extenders[1].urlPrefix: Invalid value: "http://REDACTED@[::1": must be an http:// or https:// URL '
        "with a host",
    ),
    "insecure with a CA": (
        "extenders:\n- urlPrefix: https://a\n  filterVerb: f\n  tlsConfig:\n    insecure: true\n    caFile: /ca\n",
        "7: extenders[0].tlsConfig.insecure: Invalid value: true: "
        "specifying a root certificates file with the insecure flag is not allowed",
    ),
    "negative timeout": (
        "extenders:\n- {urlPrefix: http://a, filterVerb: f, httpTimeout: -5s}\n",
        '4: extenders[0].httpTimeout: Invalid value: "-5s": must be zero (5s) or positive',
    ),
    "ignored resources without NodeResourcesFit": (
        """\
        profiles:
        - plugins: {multiPoint: {disabled: [{name: NodeResourcesFit}]}}
        extenders:
        - urlPrefix: http://a
          filterVerb: f
          managedResources:
          - name: e.com/a
            ignoredByScheduler: true
        """,
        "10: extenders[0].managedResources[0].ignoredByScheduler: couldn't build extenders: "
        'can\'t find NodeResourcesFitArgs in plugin config of profile "default-scheduler"',
    ),
}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(body, expected, id=name)
        for name, (body, *expected) in (TOP_LEVEL | PROFILES | EXTENDERS).items()
    ],
)
def test_rule(body, expected):
    assert mistakes(v1(body)) == expected


@pytest.mark.parametrize(
    "body",
    [
        "",
        "profiles: []",
        "profiles:\nleaderElection:\nextenders: ~\n",
        "percentageOfNodesToScore: 0",
        "percentageOfNodesToScore: 100",
        "podInitialBackoffSeconds: 10",
        "parallelism: 1",
        "leaderElection: {leaderElect: false, leaseDuration: -1s, resourceLock: x}",
        "leaderElection: {retryPeriod: 8.3s}",
        "leaderElection: {resourceLock: '', resourceName: '', leaseDuration: 0s}",
        "clientConnection: {qps: -1, burst: 0}",
        "profiles: [{plugins: {multiPoint: {enabled: [{name: EBSLimits}]}}}]",
        "profiles: [{plugins: {filter: {disabled: [{name: EBSLimits}]}}}]",
        "profiles: [{plugins: {score: {enabled: [{name: X, weight: -5}]}}}]",
        "profiles: [{pluginConfig: [{name: NodeResourcesFit}, {name: X, args: [1, {y: ~}]}]}]",
        "extenders: [{urlPrefix: http://a, prioritizeVerb: p, weight: 1}]",
        "extenders: [{urlPrefix: http://a, filterVerb: f, weight: -1}]",
        "extenders: [{urlPrefix: https://a, filterVerb: f, tlsConfig: {insecure: true}}]",
        "extenders: [{urlPrefix: http://a, bindVerb: b, managedResources: [{name: e.com/a}]},"
        " {urlPrefix: http://b, bindVerb: b, managedResources: [{name: e.com/b}]}]",
    ],
)
def test_legal(body):
    assert mistakes(v1(body)) == []


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file():
    text = v1("""\
        parallelism: 0
        leaderElect: true
        percentageOfNodesToScore: 200
        leaderElection:
          leaseDuration: 5
        extenders:
        - urlPrefix: http://a
          prioritizeVerb: p
        leaderElection: {}
        """)
    assert mistakes(text) == [
        "3: parallelism: Invalid value: 0: should be an integer value greater than zero",
        '4: leaderElect: unknown field "leaderElect"; did you mean "leaderElection"?',
        "5: percentageOfNodesToScore: Invalid value: 200: not in valid range [0-100]",
        '7: leaderElection.leaseDuration: Invalid value: 5: must be a duration such as "5s" or "1m30s"',
        "10: extenders[0].weight: Invalid value: 0: must have a positive weight applied to it",
        '11: leaderElection: key "leaderElection" already set in map (first in line 6)',
    ]


def test_what_could_not_be_read_is_not_reported_twice():
    text = v1("""\
        profiles:
        - schedulerName: 5
        - schedulerName: b
        extenders:
        - urlPrefix: http://a
          prioritizeVerb: p
          weight: '5'
        """)
    assert mistakes(text) == [
        "4: profiles[0].schedulerName: Invalid value: 5: must be a string",
        '9: extenders[0].weight: Invalid value: "5": must be an integer',
    ]


def test_defaults_are_kube_schedulers():
    settings = loaded().settings.configuration
    config = as_json(settings)
    assert config.pop("profiles") == [
        {
            "schedulerName": "default-scheduler",
            "plugins": as_json(Plugins()),
            "pluginConfig": [],
        }
    ]
    assert config == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "parallelism": 16,
        "leaderElection": {
            "leaderElect": True,
            "leaseDuration": "15s",
            "renewDeadline": "10s",
            "retryPeriod": "2s",
            "resourceLock": "leases",
            "resourceName": "kube-scheduler",
            "resourceNamespace": "kube-system",
        },
        "clientConnection": {
            "kubeconfig": "",
            "acceptContentTypes": "",
            "contentType": "application/vnd.kubernetes.protobuf",
            "qps": 50.0,
            "burst": 100,
        },
        "enableProfiling": True,
        "enableContentionProfiling": True,
        "percentageOfNodesToScore": 0,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 10,
        "extenders": [],
        "delayCacheUntilActive": False,
    }
    assert [profile.scheduler_name for profile in settings.profiles] == ["default-scheduler"]


def test_unset_means_default_where_go_cannot_tell_the_difference():
    config = loaded("""\
        leaderElection: {leaseDuration: 0s, renewDeadline: '0', retryPeriod: 0s, resourceNamespace: ''}
        clientConnection: {qps: 0, burst: 0, contentType: ''}
        enableProfiling: false
        extenders: [{urlPrefix: http://a, filterVerb: f, httpTimeout: 0s}]
        """).settings.configuration
    assert str(config.leader_election.lease_duration) == "15s"
    assert str(config.leader_election.retry_period) == "2s"
    assert config.leader_election.resource_namespace == "kube-system"
    assert (config.client_connection.qps, config.client_connection.burst) == (50.0, 100)
    assert config.enable_contention_profiling is False
    assert str(config.extenders[0].http_timeout) == "5s"


WARNINGS = {
    "https without a CA": (
        "extenders:\n- urlPrefix: https://user:secret@a/x\n  filterVerb: f\n  enableHTTPS: true\n",
        "6: extenders[0].enableHTTPS: the certificate of extender https://REDACTED@a/x is not verified "
        "(enableHTTPS without a CA); name a CA in tlsConfig",
    ),
    "insecure": (
        "extenders:\n- urlPrefix: https://a\n  filterVerb: f\n  tlsConfig: {insecure: true}\n",
        "6: extenders[0].tlsConfig.insecure: the certificate of extender https://a is not verified "
        "(insecure: true); name a CA in tlsConfig",
    ),
    "enableHTTPS over http": (
        "extenders:\n- {urlPrefix: http://a, filterVerb: f, enableHTTPS: true}\n",
        "4: extenders[0].enableHTTPS: urlPrefix decides: calls go over plain http all the same",
    ),
    "no verb": (
        "extenders:\n- urlPrefix: http://a\n",
        "4: extenders[0]: the extender has no verb and will never be called",
    ),
    "certificate without key": (
        "extenders:\n- urlPrefix: https://a\n  filterVerb: f\n  tlsConfig: {certFile: /c, caFile: /ca}\n",
        "6: extenders[0].tlsConfig: a client certificate is used only if both the certificate and its key are given",
    ),
    "several binders": (
        "extenders:\n- {urlPrefix: http://a, bindVerb: b, managedResources: [{name: e.com/a}]}\n"
        "- {urlPrefix: http://b, bindVerb: b, managedResources: [{name: e.com/b}]}\n",
        "3: extenders: several extenders have a bindVerb; kube-scheduler refuses this",
    ),
    "nanoseconds": (
        "extenders:\n- urlPrefix: http://a\n  filterVerb: f\n  httpTimeout: 30000000000\n",
        "6: extenders[0].httpTimeout: 30000000000 is read as nanoseconds: write 30s; kube-scheduler refuses a number",
    ),
    "nanoseconds that are seconds": (
        "extenders:\n- urlPrefix: http://a\n  filterVerb: f\n  httpTimeout: 5\n",
        "6: extenders[0].httpTimeout: 5 is read as nanoseconds: write 5s; kube-scheduler refuses a number",
    ),
    "weight reset": (
        "profiles:\n- plugins:\n    score:\n      enabled:\n      - name: TaintToleration\n",
        "7: profiles[0].plugins.score.enabled[0]: TaintToleration is listed without a weight: "
        "it becomes 1, by default it is 3",
    ),
    "left out where it prepares": (
        "profiles:\n- plugins:\n    preFilter: {disabled: [{name: NodePorts}, {name: NodeAffinity}]}\n",
        "5: profiles[0].plugins.preFilter: NodePorts runs at filter and cannot do without preFilter, "
        "where it does not run: pods will fail",
    ),
    "misspelt in disabled": (
        "profiles:\n- plugins: {score: {disabled: [{name: ImageLocalty}]}}\n",
        '4: profiles[0].plugins.score.disabled[0]: no plugin "ImageLocalty" is enabled; did you mean "ImageLocality"?',
    ),
    "misspelt in pluginConfig": (
        "profiles:\n- pluginConfig:\n  - name: NodeResourceFit\n    args: {}\n",
        '5: profiles[0].pluginConfig[0]: no plugin "NodeResourceFit" is enabled; did you mean "NodeResourcesFit"?',
    ),
    "ignored resources replaced": (
        """\
        profiles:
        - pluginConfig:
          - name: NodeResourcesFit
            args:
              ignoredResources: [e.com/mine, e.com/a]
        extenders:
        - {urlPrefix: http://a, filterVerb: f, managedResources: [{name: e.com/a, ignoredByScheduler: true}]}
        """,
        "7: profiles[0].pluginConfig[0].args.ignoredResources: is replaced by the resources that extenders mark "
        "ignoredByScheduler; lost: e.com/mine",
    ),
}


@pytest.mark.parametrize(
    ("body", "expected"),
    [pytest.param(body, expected, id=name) for name, (body, *expected) in WARNINGS.items()],
)
def test_warning(body, expected):
    assert warnings(v1(body)) == expected


@pytest.mark.parametrize(
    "body",
    [
        "profiles: [{plugins: {score: {enabled: [{name: TaintToleration, weight: 3}, {name: ImageLocality}]}}}]",
        "profiles: [{plugins: {score: {disabled: [{name: '*'}, {name: SomethingElse}]}}}]",
        "extenders: [{urlPrefix: https://a, filterVerb: f}]",
        "extenders: [{urlPrefix: HTTPS://a, filterVerb: f, enableHTTPS: true, tlsConfig: {caData: QUJD}}]",
    ],
)
def test_no_warning(body):
    assert warnings(v1(body)) == []
