"""Kubernetes' rules for names and labels, with the messages of its validation (docs/spec/extenders.md#validation)."""

import re
from typing import Final

_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_NAME})?"
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
_LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    "and must start and end with an alphanumeric character"
)
_MAX_NAME: Final = 63
_MAX_SUBDOMAIN: Final = 253

_is_name: Final = re.compile(_NAME).fullmatch
_is_subdomain: Final = re.compile(_SUBDOMAIN).fullmatch


def is_qualified_name(name: str) -> bool:
    """Whether ``name`` is ``[prefix/]name`` with a DNS subdomain as prefix (at most 253 and 63 characters)."""
    prefix, slash, tail = name.rpartition("/")
    if slash and not (0 < len(prefix) <= _MAX_SUBDOMAIN and _is_subdomain(prefix)):
        return False
    return len(tail) <= _MAX_NAME and _is_name(tail) is not None


def dns_name_errors(name: str, *, single_label: bool) -> list[str]:
    """The errors of an object's name, as a DNS label or subdomain; empty if it is valid."""
    limit = _MAX_NAME if single_label else _MAX_SUBDOMAIN
    errors = [f"must be no more than {limit} characters"] if len(name) > limit else []
    if not _is_subdomain(name):
        errors.append(_NOT_A_LABEL if single_label else _NOT_A_SUBDOMAIN)
    elif single_label and "." in name:
        errors.append("must not contain dots")
    return errors


def qualified_name_errors(value: str) -> list[str]:
    """The errors of a label key or qualified name, ``[prefix/]name``; empty if it is valid."""
    parts = value.split("/")
    if len(parts) > 2:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [f"a valid label key {_NOT_A_NAME} {example}"]
    errors = _prefix_errors(parts[0]) if len(parts) == 2 else []
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif _bytes(name) > _MAX_NAME:
        errors.append(f"name part must be no more than {_MAX_NAME} bytes")
    if not _is_name(name):
        errors.append(f"name part {_NOT_A_NAME}")
    return errors


def label_value_errors(value: str) -> list[str]:
    """The errors of a label value; empty if it is valid."""
    errors = []
    if _bytes(value) > _MAX_NAME:
        errors.append(f"must be no more than {_MAX_NAME} bytes")
    if value and not _is_name(value):
        errors.append(NOT_A_LABEL_VALUE)
    return errors


def _prefix_errors(prefix: str) -> list[str]:
    if not prefix:
        return ["prefix part must be non-empty"]
    errors = []
    if _bytes(prefix) > _MAX_SUBDOMAIN:
        errors.append(f"prefix part must be no more than {_MAX_SUBDOMAIN} bytes")
    if not _is_subdomain(prefix):
        errors.append(f"prefix part {_NOT_A_SUBDOMAIN}")
    return errors


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _regex_error(rule: str, regex: str, examples: tuple[str, ...]) -> str:
    """The rule with examples and the expression, punctuated as Kubernetes does."""
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{rule} (e.g. {shown}regex used for validation is '{regex}')"


_NOT_A_NAME: Final = _regex_error(_NAME_RULE, _NAME, ("MyName", "my.name", "123-abc"))
NOT_A_LABEL_VALUE: Final = _regex_error(_VALUE_RULE, _LABEL_VALUE, ("MyValue", "my_value", "12345"))
_NOT_A_SUBDOMAIN: Final = _regex_error(_SUBDOMAIN_RULE, _SUBDOMAIN, ("example.com",))
_NOT_A_LABEL: Final = _regex_error(_LABEL_RULE, _DNS_LABEL, ("my-name", "123-abc"))
