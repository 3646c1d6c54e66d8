"""The kubeconfig with which kubectl and client libraries reach the embedded cluster."""

import os
from pathlib import Path

import yaml

from app.sim.resources.reviews import ADMIN, ADMIN_TOKEN


def kubeconfig(url: str) -> str:
    """Returns a kubeconfig, as YAML, for the server at ``url``."""
    name = "embedded"
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": url}}],
            "users": [{"name": ADMIN, "user": {"token": ADMIN_TOKEN}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": ADMIN}}],
            "current-context": name,
        },
        sort_keys=False,
    )


def write_kubeconfig(path: Path, url: str) -> None:
    """Writes the kubeconfig atomically, so that no reader sees a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(kubeconfig(url))
    draft.chmod(0o600)
    draft.replace(path)
