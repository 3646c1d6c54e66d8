"""Validates Kubernetes names, with kube-scheduler's messages (docs/spec/extenders.md#validation)."""

import re
from typing import Final

_LABEL_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_LABEL_KEY})?"
_DNS_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_DNS_LABEL}(\.{_DNS_LABEL})*"

_NAME_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_VALUE_RULE: Final = f"a valid label must be an empty string or {_NAME_RULE.removeprefix('must ')}"
_SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    "and must start and end with an alphanumeric character"
)
_NAME_EXAMPLES: Final = ("MyName", "my.name", "123-abc")
_MAX_NAME: Final = 63
_MAX_SUBDOMAIN: Final = 253


def qualified_name_errors(value: str) -> list[str]:
    """The errors of a label key or qualified name, ``[prefix/]name``; empty if it is valid."""
    parts = value.split("/")
    if len(parts) > 2:
        rule = _regex_error(_NAME_RULE, _LABEL_KEY, _NAME_EXAMPLES)
        return [
            f"a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    errors = _prefix_errors(parts[0]) if len(parts) == 2 else []
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name.encode()) > _MAX_NAME:
        errors.append(f"name part must be no more than {_MAX_NAME} bytes")
    if not re.fullmatch(_LABEL_KEY, name):
        errors.append(f"name part {_regex_error(_NAME_RULE, _LABEL_KEY, _NAME_EXAMPLES)}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """The errors of a label value; empty if it is valid."""
    errors = []
    if len(value.encode()) > _MAX_NAME:
        errors.append(f"must be no more than {_MAX_NAME} bytes")
    if not re.fullmatch(_LABEL_VALUE, value):
        errors.append(_regex_error(_VALUE_RULE, _LABEL_VALUE, ("MyValue", "my_value", "12345")))
    return errors


def is_extended_resource_name(name: str) -> bool:
    """Whether a qualified name may be an extended resource: of a foreign domain, and usable in a quota."""
    return (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and not qualified_name_errors(f"requests.{name}")
    )


def _prefix_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    errors = []
    if len(prefix.encode()) > _MAX_SUBDOMAIN:
        errors.append(f"prefix part must be no more than {_MAX_SUBDOMAIN} bytes")
    if not re.fullmatch(_SUBDOMAIN, prefix):
        errors.append(f"prefix part {_regex_error(_SUBDOMAIN_RULE, _SUBDOMAIN, ('example.com',))}")
    return errors


def _regex_error(rule: str, regex: str, examples: tuple[str, ...]) -> str:
    """The rule with examples and the expression, punctuated as Kubernetes does."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{regex}')"
