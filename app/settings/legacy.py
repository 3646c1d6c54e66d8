"""Converts files of v1beta1, v1beta2 and v1beta3 to v1 before they are checked.

The conversion preserves the meaning: the old default weights, the old scoring plugins (now strategies of
NodeResourcesFit), disabled plugins. Each field that has changed or was removed gives a warning with what to write
instead. Values with an unexpected shape are left as they are, because later checks report them. The origin of moved
values is recorded, so that later checks name the place in the user's file.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.settings.base import V1
from app.settings.defaults import DEFAULT_WEIGHTS
from app.settings.legacy_plugins import convert_profile
from app.settings.rewrite import Rewrite, append, mappings

GROUP: Final = "kubescheduler.config.k8s.io"
VERSIONS: Final = {f"{GROUP}/{version}": version for version in ("v1beta1", "v1beta2", "v1beta3")}
"""The old API versions that are supported."""

_SERVED: Final = "is served at --bind-address and --secure-port, over HTTPS"
_GONE: Final[Mapping[str, Mapping[str, str]]] = {
    "healthzBindAddress": dict.fromkeys(("v1beta1", "v1beta2"), f"health {_SERVED}"),
    "metricsBindAddress": dict.fromkeys(("v1beta1", "v1beta2"), f"/metrics {_SERVED}"),
    "featureGates": {"v1beta1": "feature gates are flags (--feature-gates)"},
}
"""Top-level field -> for each version that had it, where its job is done now."""

OLD_WEIGHTS: Final = {"TaintToleration": 1, "NodeAffinity": 1, "InterPodAffinity": 1}
"""Default score weights of v1beta1 and v1beta2 where v1beta3 and v1 have others."""

_OLD_LOCKS: Final = ("endpoints", "configmaps", "endpointsleases", "configmapsleases")


def convert(value: Mapping[str, Any]) -> Rewrite:
    """The document as v1; a v1 document is only copied."""
    version = VERSIONS.get(str(value.get("apiVersion")))
    rewrite = Rewrite(value)
    if version is not None:
        _convert(rewrite, version)
    rewrite.finish()
    return rewrite


def _convert(rewrite: Rewrite, version: str) -> None:
    said = f"{version} is no longer served by kube-scheduler; it is read as v1: write {V1}"
    rewrite.warn(("apiVersion",), said)
    rewrite.value["apiVersion"] = V1
    _remove_gone_fields(rewrite, version)
    _lock(rewrite)
    for _, extender in mappings(rewrite.value, "extenders"):
        if rewrite.rename(extender, "enableHttps", "enableHTTPS"):
            rewrite.warn((*rewrite.path(extender), "enableHttps"), "is spelt enableHTTPS in v1")
    if not rewrite.value.get("profiles"):
        rewrite.value["profiles"] = [{}]
    for _, profile in mappings(rewrite.value, "profiles"):
        convert_profile(rewrite, profile, version)
    _disable_preemption(rewrite, version)
    if version != "v1beta3":
        _keep_old_weights(rewrite, version)


def _remove_gone_fields(rewrite: Rewrite, version: str) -> None:
    for name, by_version in _GONE.items():
        if version in by_version and name in rewrite.value:
            del rewrite.value[name]
            rewrite.warn((name,), f"is gone in v1 and ignored: {by_version[version]}")


def _lock(rewrite: Rewrite) -> None:
    election = rewrite.value.get("leaderElection")
    lock = election.get("resourceLock") if isinstance(election, dict) else None
    if isinstance(election, dict) and lock in _OLD_LOCKS:
        election["resourceLock"] = "leases"
        said = f'the lock type "{lock}" is gone: leases is used'
        said += "; do not run this beside a scheduler that still holds the old lock"
        rewrite.warn(("leaderElection", "resourceLock"), said)


def _disable_preemption(rewrite: Rewrite, version: str) -> None:
    if version != "v1beta1" or "disablePreemption" not in rewrite.value:
        return
    disable = rewrite.value.pop("disablePreemption")
    said = "is gone in v1: disable the plugin DefaultPreemption at postFilter"
    rewrite.warn(("disablePreemption",), said + (", as is done here" if disable is True else ""))
    if disable is not True:
        return
    for _, profile in mappings(rewrite.value, "profiles"):
        entry = rewrite.made({"name": "DefaultPreemption"}, ("disablePreemption",))
        _add_plugin(profile, "postFilter", "disabled", entry)


def _keep_old_weights(rewrite: Rewrite, version: str) -> None:
    """Lists default plugins with lower weights before v1beta3 in multiPoint, so that they keep weight and order."""
    for _, profile in mappings(rewrite.value, "profiles"):
        listed = [plugin.get("name") for plugin in _multi_point(profile)]
        for name, weight in OLD_WEIGHTS.items():
            if name not in listed:
                entry = rewrite.made({"name": name, "weight": weight}, ("apiVersion",))
                _add_plugin(profile, "multiPoint", "enabled", entry)
    changes = ", ".join(
        f"{name} {weight} (v1: {DEFAULT_WEIGHTS[name]})" for name, weight in OLD_WEIGHTS.items()
    )
    said = f"the default score weights of {version} are kept: {changes}"
    rewrite.warn(("apiVersion",), f"{said}; list them in multiPoint to say which you want")


def _multi_point(profile: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    plugins = profile.get("plugins")
    point = plugins.get("multiPoint") if isinstance(plugins, dict) else None
    for kind in ("enabled", "disabled"):
        for _, plugin in mappings(point, kind):
            yield plugin


def _add_plugin(profile: dict[str, Any], point: str, kind: str, entry: dict[str, Any]) -> None:
    """Appends to a list of plugins, which is added if missing; values of a wrong shape are not changed."""
    owner: Any = profile
    for name in ("plugins", point):
        if owner.get(name) is None:
            owner[name] = {}
        owner = owner[name]
        if not isinstance(owner, dict):
            return
    append(owner, kind, entry)
