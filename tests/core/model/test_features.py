"""Feature gates and versions: defaults, kube-scheduler's refusals, and which rules follow."""

import pytest

from app.model.features import (
    OLDEST,
    RECORDED,
    RULES,
    Features,
    FeaturesError,
    Rule,
    check_gates,
    known_in,
    read_gates,
    read_version,
    version_for,
)
from app.model.gates import GATES, NEEDS, OTHERS, VERSIONS


@pytest.mark.parametrize(
    ("server", "version"),
    [
        ("v1.36.2", "1.36"),
        ("v1.37.1-gke.100", "1.37"),
        ("v1.38.0-alpha.2+1a2b", "1.38"),
        ("v1.29.4", "1.36"),
        ("v1.45.0", "1.38"),
        ("v2.0.0", "1.38"),
        ("", "1.36"),
        ("unknown", "1.36"),
    ],
)
def test_the_version_follows_the_server(server, version):
    assert version_for(server) == version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("1.37", "1.37"),
        ("kube=1.38", "1.38"),
        ("v1.36", "1.36"),
        ("1.34", "1.36"),
        ("1.37.0", "1.37"),
    ],
)
def test_emulated_versions_are_read(text, version):
    assert read_version(text) == version


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("gate", ["DRAWorkloadResourceClaims", "DRAConsumableCapacity"])
def test_a_gate_that_a_version_no_longer_has_is_needed_no_longer(gate, version):
    """DynamicResourceAllocation is gone in 1.38."""
    features = Features.of(version, {"GenericWorkload": True, gate: True})
    assert GATES[gate].switches is (gate in features)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1.32", "emulation version 1.32 is not between [1.33, 1.38]"),
        ("1.39", "emulation version 1.39 is not between [1.33, 1.38]"),
        ("x", 'could not parse "x" as version'),
        ("1.37.1", "patch version not allowed, got: kube=1.37.1"),
        ("etcd=1.37", "component not registered: etcd"),
        ("1.36,kube=1.37", "duplicate version flag, kube=1.36 and kube=1.37"),
    ],
)
def test_wrong_versions_are_refused(text, said):
    with pytest.raises(FeaturesError) as refused:
        read_version(text)
    assert str(refused.value) == said


@pytest.mark.parametrize(
    ("version", "gates", "said"),
    [
        ("1.36", "Nope=true", "unrecognized feature gate: Nope"),
        ("1.36", "CompositePodGroup=false", "unrecognized feature gate: CompositePodGroup"),
        ("1.37", "GangScheduling=true", "unrecognized feature gate: GangScheduling"),
        ("1.37", "SidecarContainers=true", "unrecognized feature gate: SidecarContainers"),
        (
            "1.38",
            "MatchLabelKeysInPodAffinity=true",
            "unrecognized feature gate: MatchLabelKeysInPodAffinity",
        ),
        (
            "1.36",
            "InPlacePodVerticalScaling=false",
            "cannot set feature gate InPlacePodVerticalScaling to false, feature is locked to true",
        ),
        (
            "1.37",
            "NodeDeclaredFeatures=false,DRAPrioritizedList=false",
            "[cannot set feature gate NodeDeclaredFeatures to false, feature is locked to true, "
            "cannot set feature gate DRAPrioritizedList to false, feature is locked to true]",
        ),
        (
            "1.36",
            "NodeDeclaredFeatures=false",
            "cannot set feature gate NodeDeclaredFeatures to false: here it is always on",
        ),
        (
            "1.37",
            "CompositePodGroup=true",
            "cannot set feature gate CompositePodGroup to true: here it is always off",
        ),
        (
            "1.36",
            "GangScheduling=true",
            "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
        ),
        ("1.36", "A", "missing bool value for A"),
        (
            "1.36",
            "A=yes",
            'invalid value of A=yes, err: strconv.ParseBool: parsing "yes": invalid syntax',
        ),
        (
            "1.36",
            "AllAlpha=true",
            "cannot set feature gate AllAlpha to true: not everything of this stage is built here",
        ),
        ("1.36", "other:GenericWorkload=true", "component not registered: other"),
    ],
)
def test_wrong_gates_are_refused(version, gates, said):
    with pytest.raises(FeaturesError) as refused:
        Features.of(version, read_gates(gates))
    assert str(refused.value) == said


def test_gates_of_other_components_and_speed_change_nothing():
    gates = "RotateKubeletServerCertificate=true,kube:OpportunisticBatching=false,AllAlpha=false"
    assert Features.of("1.36", read_gates(gates)).rules == RECORDED.rules == frozenset()


def test_the_rules_of_a_version_are_those_of_the_older_ones_and_more():
    found = [Features.of(version).rules for version in VERSIONS]
    assert found[0] == frozenset()
    assert found[0] < found[1] < found[2] == frozenset(RULES) == frozenset(Rule)


@pytest.mark.parametrize("rule", [rule for rule, facts in RULES.items() if facts.gate])
def test_a_gate_turns_its_rule_on_before_and_off_after_its_time(rule):
    gate = RULES[rule].gate
    assert Features.of("1.36", {gate: True}).rules == {rule}
    assert Features.of("1.37", {gate: False}).rules == Features.of("1.37").rules - {rule}


def test_gates_that_were_merged_come_with_the_one_that_stayed():
    merged = {"GangScheduling", "WorkloadAwarePreemption"}
    assert not merged & Features.of("1.36", {"GenericWorkload": True}).gates
    assert merged < Features.of("1.37", {"GenericWorkload": True}).gates


def test_gates_that_no_version_takes_are_found_before_the_version_is_known():
    check_gates({"GenericWorkload": True, "GangScheduling": True})
    check_gates({"PodLevelResourcesFixDefaulting": True})
    # No version knows both: each is left out where it is unknown.
    check_gates({"SidecarContainers": True, "PodLevelResourcesFixDefaulting": True})
    for gates in ({"Nope": True}, {"GangScheduling": True}, {"SidecarContainers": False}):
        with pytest.raises(FeaturesError):
            check_gates(gates)
    assert known_in("1.37", {"SidecarContainers": True, "GenericWorkload": True}) == {
        "GenericWorkload": True
    }


def test_the_tables_are_consistent():
    assert not GATES.keys() & OTHERS.keys()
    assert {
        gate for needed in NEEDS.items() for gate in (needed[0], *needed[1])
    } <= GATES.keys() | OTHERS.keys()
    assert all(facts.gate in GATES for facts in RULES.values() if facts.gate)
    for gate in GATES.values():
        for known in gate.versions.values():
            assert known.default in gate.done
    assert Features.of(OLDEST) == RECORDED
