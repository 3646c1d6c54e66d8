import pytest

from app.model.names import label_value_errors, qualified_name_errors
from app.model.requests import is_extended

NAME = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
SUBDOMAIN = (
    "prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and "
    "must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("a", []),
        ("my.name", []),
        ("123-abc", []),
        ("example.com/My_Name", []),
        ("a" * 63, []),
        ("a" * 64, ["name part must be no more than 63 bytes"]),
        ("", ["name part must be non-empty", f"name part {NAME}"]),
        ("a/", ["name part must be non-empty", f"name part {NAME}"]),
        ("/a", ["prefix part must be non-empty"]),
        ("Example.com/a", [SUBDOMAIN]),
        ("-a", [f"name part {NAME}"]),
        ("a\n", [f"name part {NAME}"]),
        (f"{'a.' * 127}a/b", ["prefix part must be no more than 253 bytes"]),
        (
            "a/b/c",
            [
                f"a valid label key {NAME} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ],
        ),
    ],
)
def test_qualified_names(name, errors):
    assert qualified_name_errors(name) == errors


@pytest.mark.parametrize(
    ("value", "errors"),
    [
        ("", []),
        ("my_value", []),
        ("a" * 63, []),
        ("a" * 64, ["must be no more than 63 bytes"]),
        ("a b", [VALUE]),
        ("-", [VALUE]),
    ],
)
def test_label_values(value, errors):
    assert label_value_errors(value) == errors


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        ("example.com/gpu", True),
        ("nvidia.com/gpu", True),
        ("opaqueFooResource", False),
        ("cpu", False),
        ("kubernetes.io/gpu", False),
        ("sub.kubernetes.io/gpu", False),
        ("requests.example.com/gpu", False),
        (f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 60}/gpu", True),
        (f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 62}/gpu", False),
    ],
)
def test_extended_resource_names(name, extended):
    assert is_extended(name) is extended
