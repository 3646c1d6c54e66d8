"""Adds an embedded cluster to a kubeconfig, as kind does: what else is in the file stays."""

import os
from pathlib import Path
from typing import Any, Final

import yaml

from app.settings.yaml import load_documents
from app.sim.manifests import ManifestError
from app.sim.resources.reviews import ADMIN_TOKEN

_NAME: Final = "embedded"
"""Of the cluster, the user and the context."""
_SECTIONS: Final = {"clusters": "cluster", "users": "user", "contexts": "context"}
_USER: Final = {"token": ADMIN_TOKEN}
_CONTEXT: Final = {"cluster": _NAME, "user": _NAME}


def write_kubeconfig(path: Path, url: str) -> None:
    """Adds the server at ``url`` to the file and makes it the current one; atomically, so that no reader sees a part of
    it.

    Raises ManifestError for a file to which it cannot be added, and OSError.
    """
    path = path.resolve()  # a symbolic link stays one
    content = merged_kubeconfig(path, url)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            yaml.safe_dump(content, file, sort_keys=False, allow_unicode=True)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def merged_kubeconfig(path: Path, url: str) -> dict[str, Any]:
    """The content of the file, if there is one, with this cluster, its user and its context.

    Raises ManifestError and OSError.
    """
    content = {"apiVersion": "v1", "kind": "Config"} | _present(path)
    for section, value in (
        ("clusters", {"server": url}),
        ("users", _USER),
        ("contexts", _CONTEXT),
    ):
        content[section] = _with_ours(content.get(section) or [], section, value, path)
    return content | {"current-context": _NAME}


def _present(path: Path) -> dict[str, Any]:
    try:
        documents = load_documents(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise _refused(path, f"it is no YAML: {error}") from error
    if not documents:
        return {}
    found = documents[0]
    if len(documents) > 1 or not isinstance(found, dict) or found.get("kind", "Config") != "Config":
        raise _refused(path, "it is no kubeconfig")
    return found


def _with_ours(entries: Any, section: str, value: dict[str, str], path: Path) -> list[Any]:
    """The entries with ours in place of the one that an earlier run has added."""
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise _refused(path, f"its {section} are no list of objects")
    key = _SECTIONS[section]
    found = [each.get(key) for each in entries if each.get("name") == _NAME]
    if not all(isinstance(each, dict) and _is_ours(each, value) for each in found):
        raise _refused(path, f"it has another {key} {_NAME!r}")
    ours = {"name": _NAME, key: value}
    return [*(each for each in entries if each.get("name") != _NAME), ours]


def _is_ours(found: dict[str, Any], value: dict[str, str]) -> bool:
    """Whether an entry of our name may be replaced: an earlier run has made it, and nothing in it is worth keeping."""
    if "server" in value:
        return set(found) == {"server"} and str(found["server"]).startswith("http://")
    return found == value or ("cluster" in value and found.get("cluster") == _NAME)


def _refused(path: Path, why: str) -> ManifestError:
    return ManifestError(f"{path}: the cluster cannot be added to this kubeconfig: {why}")
