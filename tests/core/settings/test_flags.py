import pytest

from app.settings.flags import Flags, apply_flags, flag_name
from app.settings.problems import ConfigurationError
from tests.core.settings.kit import loaded, short

FILE = """\
leaderElection:
  leaseDuration: 30s
  renewDeadline: 20s
  resourceName: mine
clientConnection: {kubeconfig: /from/file}
"""


def refused(base, **flags):
    with pytest.raises(ConfigurationError) as caught:
        apply_flags(base, Flags(**flags))
    return [short(problem) for problem in caught.value.problems]


def test_without_flags_nothing_changes():
    base = loaded(FILE)
    assert apply_flags(base, Flags()) == base


def test_election_flags_win_over_the_file_where_given():
    flags = Flags(
        leader_elect=False,
        leader_elect_lease_duration="45s",
        leader_elect_retry_period="500ms",
        leader_elect_resource_namespace="here",
    )
    election = apply_flags(loaded(FILE), flags).settings.configuration.leader_election
    assert election.leader_elect is False
    assert str(election.lease_duration) == "45s"
    assert str(election.renew_deadline) == "20s"
    assert str(election.retry_period) == "500ms"
    assert (election.resource_name, election.resource_namespace) == ("mine", "here")


def test_deprecated_flags_are_ignored_beside_a_file():
    flags = Flags(kubeconfig="/flag", kube_api_qps=5.0, profiling=False)
    result = apply_flags(loaded(FILE), flags)
    assert result.settings.configuration.client_connection.kubeconfig == "/from/file"
    assert result.settings.configuration.client_connection.qps == 50.0
    assert result.settings.configuration.enable_profiling is True
    said = "is ignored because there is a configuration file; set"
    assert [warning.message for warning in result.warnings] == [
        f"--kubeconfig {said} clientConnection.kubeconfig there",
        f"--kube-api-qps {said} clientConnection.qps there",
        f"--profiling {said} enableProfiling there",
    ]


def test_the_kubeconfig_counts_when_the_file_names_none():
    base = loaded("leaderElection: {resourceName: mine}\n")
    result = apply_flags(base, Flags(kubeconfig="/flag"))
    assert result.settings.configuration.client_connection.kubeconfig == "/flag"
    assert result.warnings == base.warnings


def test_without_a_file_every_flag_counts():
    flags = Flags(
        leader_elect_resource_name="other",
        kubeconfig="/flag",
        kube_api_content_type="application/json",
        kube_api_qps=-1.0,
        kube_api_burst=7,
        profiling=False,
        contention_profiling=False,
    )
    result = apply_flags(None, flags)
    config = result.settings.configuration
    assert result.warnings == ()
    assert config.leader_election.resource_name == "other"
    assert config.client_connection.kubeconfig == "/flag"
    assert config.client_connection.content_type == "application/json"
    assert (config.client_connection.qps, config.client_connection.burst) == (-1.0, 7)
    assert config.enable_profiling is False
    assert config.enable_contention_profiling is False
    assert config.profiles[0].scheduler_name == "default-scheduler"


def test_the_result_is_checked_and_the_flag_named():
    assert refused(loaded(FILE), leader_elect_lease_duration="20s") == [
        '0: leaderElection.leaseDuration: Invalid value: "20s": must be greater than `RenewDeadline` '
        "(--leader-elect-lease-duration)"
    ]
    assert refused(None, leader_elect_resource_name="", leader_elect_resource_lock="x") == [
        '0: leaderElection.resourceLock: Invalid value: "x": resourceLock value must be "leases" '
        "(--leader-elect-resource-lock)",
        "0: leaderElection.resourceName: Required value (--leader-elect-resource-name)",
    ]


def test_a_field_of_the_file_that_a_flag_makes_wrong_keeps_its_line():
    assert refused(loaded(FILE), leader_elect_renew_deadline="30s") == [
        '4: leaderElection.leaseDuration: Invalid value: "30s": must be greater than `RenewDeadline`'
    ]


def test_durations_must_be_durations():
    assert refused(None, leader_elect_retry_period="2", leader_elect_renew_deadline="x") == [
        '0: : invalid argument "2" for "--leader-elect-retry-period" flag: '
        'time: missing unit in duration "2"',
        '0: : invalid argument "x" for "--leader-elect-renew-deadline" flag: '
        'time: invalid duration "x"',
    ]


def test_burst_is_checked_without_a_file():
    assert refused(None, kube_api_burst=-1) == [
        "0: clientConnection.burst: Invalid value: -1: must be non-negative (--kube-api-burst)"
    ]


def test_an_election_that_is_off_is_not_checked():
    flags = Flags(leader_elect=False, leader_elect_lease_duration="1s")
    assert apply_flags(None, flags).settings.configuration.leader_election.leader_elect is False


def test_names():
    assert flag_name("leader_elect_lease_duration") == "--leader-elect-lease-duration"
