"""Formats the effective configuration as kube-scheduler does: v1, complete, and without secrets.

For ``/configz`` and ``--write-config-to``. The output can be loaded again, also by kube-scheduler.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from app.settings.args import ARGS, PluginArgs
from app.settings.base import as_json
from app.settings.extension import AiokubeSchedulerConfiguration
from app.settings.fieldtext import REDACTED, redact_url
from app.settings.load import Settings
from app.settings.models import FIELD_OF_POINT, KubeSchedulerProfile, PluginConfig, PluginSet
from app.settings.plugins import enabled_names, merge_plugins

_APART: Final = frozenset({"profiles", "extenders"})


def to_dict(settings: Settings, *, redact: bool = True) -> dict[str, Any]:
    """The first document with every default filled in, as JSON values."""
    config = settings.configuration
    document: dict[str, Any] = _tidy(
        {name: each for name, each in as_json(config).items() if name not in _APART}
    )
    document["profiles"] = [_profile(profile) for profile in config.profiles]
    extenders = [_tidy(as_json(extender)) for extender in config.extenders]
    if extenders:
        document["extenders"] = [_redacted(item) for item in extenders] if redact else extenders
    return document


def without_paths(settings: Settings) -> Settings:
    """The settings without the path of the kubeconfig, which says nothing to a replay."""
    configuration = settings.configuration
    client = msgspec.structs.replace(configuration.client_connection, kubeconfig="")
    changed = msgspec.structs.replace(configuration, client_connection=client)
    return Settings(changed, settings.extension)


def to_yaml(settings: Settings, *, redact: bool = True) -> str:
    """The configuration as a file; the second document only if it differs from the defaults."""
    documents = [to_dict(settings, redact=redact)]
    if settings.extension != AiokubeSchedulerConfiguration():
        documents.append(extension_to_dict(settings, redact=redact))
    import yaml  # noqa: PLC0415 - see app.settings.yaml

    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)


def extension_to_dict(settings: Settings, *, redact: bool = True) -> dict[str, Any]:
    """The second document with every default filled in, as JSON values."""
    document: dict[str, Any] = _tidy(as_json(settings.extension))
    if redact and "extenders" in document:
        document["extenders"] = [_redacted(options) for options in document["extenders"]]
    return document


def _profile(profile: KubeSchedulerProfile) -> dict[str, Any]:
    """A profile with the default plugins merged in and the arguments of every enabled plugin."""
    plugins = merge_plugins(profile.plugins)
    missing = sorted(enabled_names(plugins) & ARGS.keys() - profile.args.keys())
    configs = [
        *profile.plugin_config,
        *(PluginConfig(name=name, args=ARGS[name]()) for name in missing),
    ]
    head = {
        "schedulerName": profile.scheduler_name,
        "percentageOfNodesToScore": profile.percentage_of_nodes_to_score,
    }
    sets = {point: _plugin_set(plugins.at(point)) for point in FIELD_OF_POINT}
    return {
        **_tidy(head),
        "plugins": {point: plugin_set for point, plugin_set in sets.items() if plugin_set},
        "pluginConfig": [_plugin_config(entry) for entry in configs],
    }


def _plugin_set(plugin_set: PluginSet) -> dict[str, Any]:
    """The plugins with what is given for them."""
    lists = {"enabled": plugin_set.enabled, "disabled": plugin_set.disabled}
    return {
        name: [{key: item for key, item in as_json(plugin).items() if item} for plugin in plugins]
        for name, plugins in lists.items()
        if plugins
    }


def _plugin_config(entry: PluginConfig) -> dict[str, Any]:
    if isinstance(entry.args, PluginArgs):
        return {
            "name": entry.name,
            "args": _tidy(as_json(entry.args)),
        }
    return {"name": entry.name, "args": entry.args}


def _tidy(value: Any) -> Any:
    """The value without nulls, empty texts and empty lists, as with Go's omitempty."""
    if isinstance(value, Mapping):
        items = {key: _tidy(item) for key, item in value.items()}
        return {key: item for key, item in items.items() if item not in (None, "", [])}
    if isinstance(value, list):
        return [_tidy(item) for item in value]
    return value


def _redacted(extender: Mapping[str, Any]) -> dict[str, Any]:
    """An extender without its private key and without a password in its URL."""
    shown = dict(extender)
    shown["urlPrefix"] = redact_url(str(shown.get("urlPrefix", "")))
    tls = shown.get("tlsConfig")
    if isinstance(tls, Mapping) and "keyData" in tls:
        shown["tlsConfig"] = {**tls, "keyData": REDACTED}
    return shown
