"""The output of ``check-config``: all warnings and mistakes with their places, or the resulting configuration."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from app.framework.args import Profile
from app.settings.args import ARGS, LabelSelector, PluginArgs
from app.settings.base import V1, as_json
from app.settings.fieldtext import SECRETS, redact_url
from app.settings.load import ConfiguredExtender, Loaded
from app.settings.models import KubeSchedulerProfile
from app.settings.policy import is_policy
from app.settings.problems import ConfigurationError, Problem
from app.settings.yaml import read_documents

#: Line breaks as PyYAML counts them.
_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
#: Keys and credentials in any position; a line of base64 may be part of a key.
_MAY_BE_SECRET: Final = re.compile(rf"{'|'.join(SECRETS)}|://[^/\s]*@|[A-Za-z0-9+/=]{{48}}")
#: Characters of a line that are shown, and at most how many of them before the place.
_WIDTH: Final = 90
_BEFORE: Final = 60

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
#: Shown if placements of pod groups are generated.
_PLACEMENT_POINTS = ("placementGenerate", "placementScore")


class Checked(msgspec.Struct, frozen=True):
    """A file with the result of reading it."""

    source: str
    """The name of the file, as the user gave it."""
    text: str
    """Its content; empty if it cannot be read."""
    result: Loaded | ConfigurationError
    profiles: tuple[Profile, ...] = ()
    """The profiles of a valid file."""

    @property
    def is_valid(self) -> bool:
        """Whether a scheduler could start with it."""
        return isinstance(self.result, Loaded)


def as_text(checked: Checked) -> str:
    """Text: each mistake with its line and a mark, or the resulting configuration."""
    warnings = checked.result.warnings
    lines: list[str] = []
    if isinstance(checked.result, ConfigurationError):
        count = len(checked.result.problems)
        mistakes = "mistake" if count == 1 else "mistakes"
        lines.append(f"{checked.source}: not valid: {count} {mistakes}{_count(warnings)}")
        is_old = any(is_policy(each.value) for each in read_documents(checked.text).documents)
    else:
        lines.append(f"{checked.source}: valid{_count(warnings)}")
        lines += _amounts_to(checked.result, checked.profiles)
        is_old = any(problem.path == "apiVersion" for problem in warnings)
    if is_old:
        lines.append(f"{checked.source}: aiokube-scheduler convert-config writes it as {V1}")
    return problems_as_text(checked) + "\n".join(lines) + "\n"


def problems_as_text(checked: Checked) -> str:
    """The warnings and mistakes, each with its line and a mark."""
    lines: list[str] = []
    excerpts = _Excerpts(checked.text)
    for problem in checked.result.warnings:
        message = f"warning: {problem.message}"
        shown = Problem(problem.line, problem.column, problem.path, message)
        lines += [shown.render(checked.source), *excerpts.around(problem)]
    if isinstance(checked.result, ConfigurationError):
        for problem in checked.result.problems:
            lines += [problem.render(checked.source), *excerpts.around(problem)]
    return "".join(f"{line}\n" for line in lines)


def as_object(checked: Checked) -> Mapping[str, Any]:
    """The same as values for JSON."""
    result = checked.result
    problems = result.problems if isinstance(result, ConfigurationError) else ()
    return {
        "file": checked.source,
        "valid": checked.is_valid,
        "mistakes": [msgspec.structs.asdict(problem) for problem in problems],
        "warnings": [msgspec.structs.asdict(problem) for problem in result.warnings],
    }


def _amounts_to(loaded: Loaded, profiles: Iterable[Profile]) -> Iterator[str]:
    for profile, source in zip(profiles, loaded.settings.configuration.profiles, strict=True):
        yield ""
        yield from _profile(profile, source)
    if loaded.settings.extenders:
        yield ""
        yield "extenders"
        yield from map(_extender, loaded.settings.extenders)


class _Excerpts:
    """Shows the lines of problems."""

    def __init__(self, text: str) -> None:
        self._lines: Final = _LINE_BREAK.split(text) if text else []

    def around(self, problem: Problem) -> Iterator[str]:
        """The line with a mark below the place; nothing without a place, or if the line may have a secret."""
        if not 0 < problem.line <= len(self._lines):
            return
        line = "".join(c if c.isprintable() else " " for c in self._lines[problem.line - 1])
        if _MAY_BE_SECRET.search(line):
            return
        start = max(0, problem.column - 1 - _BEFORE)
        shown = line[start : start + _WIDTH].rstrip()
        if start + _WIDTH < len(line):
            shown += " ..."
        number = str(problem.line)
        yield f"{number:>6} | {shown}"
        yield f"{'':>6} | {' ' * (problem.column - 1 - start)}^"


def _count(warnings: tuple[Problem, ...]) -> str:
    return f", {len(warnings)} warning{'s' * (len(warnings) != 1)}" if warnings else ""


def _profile(profile: Profile, source: KubeSchedulerProfile) -> Iterator[str]:
    yield f"profile {profile.scheduler_name}"
    placing = _PLACEMENT_POINTS if profile.points["placementGenerate"] else ()
    weights = {"score": profile.score_weights, "placementScore": profile.placement_weights}
    for point in (*_POINTS_IN_RUNNING_ORDER, *placing):
        names = profile.points[point]
        if point in weights:
            names = tuple(f"{name} ({weights[point][name]})" for name in names)
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
    usual = as_json(ARGS[name]())
    return {field: value for field, value in as_json(args).items() if value != usual.get(field)}


def _extender(configured: ConfiguredExtender) -> str:
    extender, options = configured
    verbs = {
        "filter": extender.filter_verb,
        "preempt": extender.preempt_verb,
        f"prioritize (weight {extender.weight})": extender.prioritize_verb,
        "bind": extender.bind_verb,
        "release": options.release_verb,
        "group": options.group_verb,
    }
    facts = [
        ", ".join(name for name, verb in verbs.items() if verb) or "no verbs",
        "node names" if extender.node_cache_capable else "whole nodes",
        f"timeout {extender.http_timeout}",
    ]
    facts += ["ignorable"] * extender.ignorable + ["serial"] * bool(options.serial)
    facts += ["one answer for equal pods of a group"] * options.answers_for_template
    if options.dry_run.verbs:
        form = {True: ", names", False: ", whole nodes", None: ""}
        paths = ", ".join(options.dry_run.verbs.values())
        facts.append(f"dry run: {paths}{form[options.dry_run.node_cache_capable]}")
    facts += ["shadow: its answers are compared, not obeyed"] * options.shadow
    if extender.managed_resources:
        facts.append(f"for {', '.join(resource.name for resource in extender.managed_resources)}")
    if options.pod_selector != LabelSelector():
        facts.append(f"pods with {_selector(options.pod_selector)}")
    if options.namespace_selector != LabelSelector():
        facts.append(f"namespaces with {_selector(options.namespace_selector)}")
    if options.profiles:
        facts.append(f"profiles {', '.join(options.profiles)}")
    return f"  {redact_url(extender.url_prefix)}: {'; '.join(facts)}"


def _selector(selector: LabelSelector) -> str:
    """As in ``kubectl get -l``."""
    parts = [f"{key}={value}" for key, value in selector.match_labels.items()]
    for requirement in selector.match_expressions:
        key, values = requirement.key, ", ".join(requirement.values or ())
        form = {"Exists": "{0}", "DoesNotExist": "!{0}", "NotIn": "{0} notin ({1})"}
        parts.append(form.get(requirement.operator, "{0} in ({1})").format(key, values))
    return ",".join(parts)
