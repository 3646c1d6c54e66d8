"""What ``check-config`` prints: every warning and mistake with its place, or what the configuration amounts to."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from app.framework.args import Profile
from app.settings.args import ARGS, PluginArgs
from app.settings.defaults import IN_TREE_CAPABILITIES, Capabilities
from app.settings.fieldtext import redact_url
from app.settings.load import ConfiguredExtender, Loaded
from app.settings.models import KubeSchedulerProfile
from app.settings.problems import ConfigurationError, Problem

_POINTS_IN_RUNNING_ORDER = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)


def render_check(
    path: str,
    result: Loaded | ConfigurationError,
    capabilities: Capabilities = IN_TREE_CAPABILITIES,
) -> tuple[str, int]:
    """The text for people and the exit code: 0 for a configuration that a scheduler could start with.

    ``path`` is the file's name as the user gave it; ``capabilities`` says what each registered plugin implements.
    """
    if isinstance(result, ConfigurationError):
        return _render_mistakes(path, result), 1
    try:
        profiles = result.to_plain(capabilities)
    except ConfigurationError as error:
        return _render_mistakes(path, error), 1
    lines = [*_warnings(path, result.warnings), f"{path}: valid{_count(result.warnings)}"]
    configured = result.settings.configuration.profiles
    for profile, source in zip(profiles, configured, strict=True):
        lines += ["", *_profile(profile, source)]
    if result.settings.extenders:
        lines += ["", "extenders", *map(_extender, result.settings.extenders)]
    return "\n".join(lines) + "\n", 0


def _render_mistakes(path: str, error: ConfigurationError) -> str:
    lines = [*_warnings(path, error.warnings)]
    lines += [problem.render(path) for problem in error.problems]
    mistakes = "mistake" if len(error.problems) == 1 else "mistakes"
    lines.append(f"{path}: not valid: {len(error.problems)} {mistakes}{_count(error.warnings)}")
    return "\n".join(lines) + "\n"


def _warnings(path: str, warnings: Iterable[Problem]) -> Iterator[str]:
    for warning in warnings:
        message = f"warning: {warning.message}"
        yield Problem(warning.line, warning.column, warning.path, message).render(path)


def _count(warnings: tuple[Problem, ...]) -> str:
    return f", {len(warnings)} warning{'s' * (len(warnings) != 1)}" if warnings else ""


def _profile(profile: Profile, source: KubeSchedulerProfile) -> Iterator[str]:
    yield f"profile {profile.scheduler_name}"
    for point in _POINTS_IN_RUNNING_ORDER:
        names = profile.points[point]
        if point == "score":
            names = tuple(f"{name} ({profile.score_weights[name]})" for name in names)
        yield f"  {point:<12}{', '.join(names) or '-'}"
    percentage = profile.percentage_of_nodes_to_score
    if percentage is not None:
        yield f"  percentageOfNodesToScore: {percentage}"
    for entry in source.plugin_config:
        for field, value in _changed(entry.name, entry.args).items():
            yield f"  {entry.name}.{field}: {json.dumps(value, ensure_ascii=False)}"


def _changed(name: str, args: Any) -> Mapping[str, Any]:
    """The arguments that differ from the defaults; all of an out-of-tree plugin's."""
    if not isinstance(args, PluginArgs):
        return args if isinstance(args, Mapping) else {"args": args}
    usual = ARGS[name]().model_dump(mode="json", by_alias=True, exclude_none=True)
    dumped = args.model_dump(mode="json", by_alias=True, exclude_none=True)
    return {field: value for field, value in dumped.items() if value != usual.get(field)}


def _extender(configured: ConfiguredExtender) -> str:
    extender, options = configured
    verbs = {
        "filter": extender.filter_verb,
        "preempt": extender.preempt_verb,
        f"prioritize (weight {extender.weight})": extender.prioritize_verb,
        "bind": extender.bind_verb,
    }
    facts = [
        ", ".join(name for name, verb in verbs.items() if verb) or "no verbs",
        "node names" if extender.node_cache_capable else "whole nodes",
        f"timeout {extender.http_timeout}",
    ]
    facts += ["ignorable"] * extender.ignorable + ["serial"] * bool(options.serial)
    if extender.managed_resources:
        facts.append(f"for {', '.join(resource.name for resource in extender.managed_resources)}")
    return f"  {redact_url(extender.url_prefix)}: {'; '.join(facts)}"
