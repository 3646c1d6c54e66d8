"""Adapts the user's configuration to a simulation: no extenders by default, and dry runs of them if requested.

Real extenders reserve things while they filter. One without a dry run is left out.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from app.plugins import registry
from app.runtime.distributions import entry_points
from app.scheduler.profiles import plugin_problems
from app.settings.args import NodeResourcesFitArgs
from app.settings.load import Loaded, Settings, load
from app.settings.models import (
    KubeSchedulerProfile,
    PluginConfig,
)
from app.settings.problems import ConfigurationError, Problem

_FIT: Final = "NodeResourcesFit"


class Configured(NamedTuple):
    """A valid configuration."""

    settings: Settings
    left_out: tuple[str, ...]
    """The extenders that are not called."""
    warnings: tuple[str, ...]

    @property
    def schedulers(self) -> tuple[str, ...]:
        """The names of its profiles."""
        profiles = self.settings.configuration.profiles
        return tuple(profile.scheduler_name for profile in profiles)

    @property
    def calls_extenders(self) -> bool:
        """Whether any extender is called."""
        return any(options.dry_run.verbs for _, options in self.settings.extenders)


def configured(file: Path | None, *, extenders: bool) -> Configured:
    """Reads and checks a file (None: the defaults) with the installed plugins.

    Raises ConfigurationError, RegistryError.
    """
    loaded = load(file, features=None) if file is not None else Loaded(Settings())
    classes = registry.registry(entry_points(group=registry.GROUP))
    problems: Iterable[Problem] = plugin_problems(loaded, classes)
    if problems:
        raise ConfigurationError(problems, source=loaded.source, warnings=loaded.warnings)
    settings = loaded.settings
    left_out = tuple(
        extender.url_prefix
        for extender, options in settings.extenders
        if not (extenders and options.dry_run.verbs)
    )
    warnings = tuple(warning.render(loaded.source) for warning in loaded.warnings)
    adapted = _with_dry_runs(settings) if extenders else without_extenders(settings)
    return Configured(adapted, left_out, warnings)


def _with_dry_runs(settings: Settings) -> Settings:
    """The settings with the verbs of dry runs in place of those that reserve.

    An extender without a dry run keeps no verb: NodeResourcesFit still leaves resources to it.
    """
    extenders, options = [], []
    for extender, given in settings.extenders:
        dry = given.dry_run
        names = dry.node_cache_capable
        changes = {
            "filter_verb": dry.filter_verb,
            "prioritize_verb": dry.prioritize_verb,
            "preempt_verb": dry.preempt_verb,
            "bind_verb": "",
            "node_cache_capable": extender.node_cache_capable if names is None else names,
        }
        extenders.append(msgspec.structs.replace(extender, **changes))
        if given.url_prefix:
            options.append(msgspec.structs.replace(given, release_verb="", group_verb=""))
    changed = _changed(settings, {"extenders": tuple(extenders)})
    extension = msgspec.structs.replace(settings.extension, extenders=tuple(options))
    return Settings(changed.configuration, extension)


def without_extenders(settings: Settings) -> Settings:
    """The settings without extenders; resources that only they check are not checked."""
    config = settings.configuration
    profiles = tuple(
        _ignoring(profile, settings.ignored_by_scheduler(profile.scheduler_name))
        for profile in config.profiles
    )
    without = _changed(settings, {"extenders": (), "profiles": profiles})
    extension = msgspec.structs.replace(settings.extension, extenders=())
    return Settings(without.configuration, extension)


def _ignoring(profile: KubeSchedulerProfile, resources: frozenset[str]) -> KubeSchedulerProfile:
    """The profile with further resources that NodeResourcesFit does not check."""
    if not resources:
        return profile
    given = profile.args.get(_FIT)
    args = given if isinstance(given, NodeResourcesFitArgs) else NodeResourcesFitArgs()
    known = args.ignored_resources
    added = msgspec.structs.replace(
        args, ignored_resources=(*known, *sorted(resources - set(known)))
    )
    entry = PluginConfig(name=_FIT, args=added)
    others = [each for each in profile.plugin_config if each.name != _FIT]
    return msgspec.structs.replace(profile, plugin_config=(*others, entry))


def _changed(settings: Settings, changes: dict[str, Any]) -> Settings:
    configuration = msgspec.structs.replace(settings.configuration, **changes)
    return Settings(configuration, settings.extension)
