"""What a file is, and what it is not."""

import re

import pytest

from app.settings.load import load
from app.settings.problems import ConfigurationError
from tests.core.settings.kit import HEAD, mistakes, with_extension

V1 = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
WRITE = f"write apiVersion: {V1}, kind: {KIND}"
ALSO = "(v1beta1, v1beta2, v1beta3 are read too)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f"kind: {KIND}\nparallelism: 0\n",
            [
                f"1: apiVersion: Object 'apiVersion' is missing in 'kind: {KIND} parallelism: 0'; write apiVersion: {V1}",
                "2: parallelism: Invalid value: 0: should be an integer value greater than zero",
            ],
            id="no apiVersion",
        ),
        pytest.param(
            f"apiVersion: {V1}\nparallelism: 1\n",
            [
                f"1: kind: Object 'Kind' is missing in 'apiVersion: {V1} parallelism: 1'; write kind: {KIND}",
            ],
            id="no kind",
        ),
        pytest.param(
            f"apiVersion: kubescheduler.config.k8s.io/v2\nkind: {KIND}\nparallelism: 0\n",
            [
                f'1: apiVersion: no kind "{KIND}" is registered for version "kubescheduler.config.k8s.io/v2"; '
                f"{WRITE} {ALSO}"
            ],
            id="later version",
        ),
        pytest.param(
            f"apiVersion: kubescheduler.config.k8s.io/v1alpha2\nkind: {KIND}\n",
            [
                f'1: apiVersion: no kind "{KIND}" is registered for version "kubescheduler.config.k8s.io/v1alpha2"; '
                f"{WRITE} {ALSO}"
            ],
            id="too old",
        ),
        pytest.param(
            f"apiVersion: v1\nkind: {KIND}\n",
            [f'1: apiVersion: no kind "{KIND}" is registered for version "v1"; {WRITE}'],
            id="no group",
        ),
        pytest.param(
            f"apiVersion: {V1}\nkind: KubeSchedulerConfig\n",
            [f'2: kind: no kind "KubeSchedulerConfig" is registered for version "{V1}"; {WRITE} {ALSO}'],
            id="misspelt kind",
        ),
        pytest.param(
            f"apiVersion: {V1}\nkind: NodeAffinityArgs\n",
            [
                f"2: kind: couldn't decode as {KIND}, got {V1}, Kind=NodeAffinityArgs: "
                "arguments belong into profiles[].pluginConfig[].args"
            ],
            id="arguments",
        ),
        pytest.param(
            '{"kind": "Policy", "apiVersion": "v1", "extenders": []}',
            [
                '1: apiVersion: no kind "Policy" is registered for version "v1"; '
                f"scheduler policies are gone: list the extenders in a {KIND} of {V1}"
            ],
            id="policy",
        ),
        pytest.param(
            "apiVersion: v1\nkind: ConfigMap\n",
            [
                '1: apiVersion: no kind "ConfigMap" is registered for version "v1"; '
                "the configuration is a text below its data: write that into a file of its own"
            ],
            id="config map",
        ),
        pytest.param(
            "- a\n",
            ["1: : a configuration is a mapping that starts with apiVersion and kind"],
            id="list",
        ),
        pytest.param(
            "# nothing\n",
            [f"0: : the file holds no {KIND}; start it with apiVersion: {V1} and kind: {KIND}"],
            id="empty",
        ),
        pytest.param(
            f"{HEAD}---\n{HEAD}",
            [f"4: : the file holds a second {KIND}; merge it into the first"],
            id="twice",
        ),
    ],
)  # fmt: skip
def test_wrong_file(text, expected):
    assert mistakes(text) == expected


def test_a_long_text_is_cut_in_the_message():
    (problem,) = mistakes(f"apiVersion: {V1}\nparallelism: 1\nprofiles: []\nextenders: []\n")
    assert re.search(r"is missing in '.{60}\.\.\.'; write kind", problem)


def test_json_is_read_like_yaml():
    text = '{\n\t"apiVersion": "kubescheduler.config.k8s.io/v1",\n\t"kind": "KubeSchedulerConfiguration",\n\t"parallelism": 0\n}'
    assert mistakes(text) == [
        "4: parallelism: Invalid value: 0: should be an integer value greater than zero"
    ]


def test_a_file_is_read_and_named(tmp_path):
    path = tmp_path / "scheduler.yaml"
    path.write_text(f"\ufeff{HEAD}parallelism: 2\n", encoding="utf-8")
    assert load(path).settings.configuration.parallelism == 2
    assert load(path).source == str(path)
    path.write_text(f"{HEAD}parallelism: -2\n")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert str(caught.value) == (
        f"{path}:3:1: parallelism: Invalid value: -2: should be an integer value greater than zero"
    )


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigurationError, match=r"missing\.yaml: cannot be read: No such file"):
        load(tmp_path / "missing.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"a: \xff\n")
    with pytest.raises(
        ConfigurationError, match=r"bad.yaml: is not UTF-8: invalid start byte at byte 3"
    ):
        load(bad)


def test_the_name_can_be_given():
    with pytest.raises(ConfigurationError, match=r"^stdin:1:1: "):
        load("- a", name="stdin")


def test_the_order_of_the_documents_does_not_matter():
    first, _, second = with_extension("parallelism: 3\n", "maxBindingsInFlight: 4\n").partition(
        "---\n"
    )
    settings = load(f"{second}---\n{first}").settings
    assert settings.configuration.parallelism == 3
    assert settings.extension.max_bindings_in_flight == 4
