"""Warnings about settings that are valid but probably not intended, or not valid in kube-scheduler."""

from collections.abc import Callable
from typing import Final

from app.settings.args import ARGS, LabelSelector, NodeResourcesFitArgs
from app.settings.defaults import DEFAULT_WEIGHTS, IN_TREE_CAPABILITIES, PREPARED_AT
from app.settings.extension import AiokubeSchedulerConfiguration, ExtenderOptions
from app.settings.fieldtext import show
from app.settings.models import (
    FIELD_OF_POINT,
    Extender,
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
)
from app.settings.plugins import ResolvedPlugins, enabled_names, merge_plugins, resolve
from app.settings.problems import Finding, Findings, Path, closest
from app.settings.validation import insecure_extenders, trimmed

_LONG_SECONDS: Final = 600.0
"""A time limit of a call that is hardly meant, or no longer needed: those of known extenders end at 5 minutes."""


def advise(
    config: KubeSchedulerConfiguration,
    extension: AiokubeSchedulerConfiguration,
    ignored_by_scheduler: Callable[[str], frozenset[str]],
) -> Findings:
    """All warnings about the first document; the texts are our own.

    ``ignored_by_scheduler`` returns the resources that extenders check instead of a profile's NodeResourcesFit.
    """
    if not extension.refuse_insecure_tls:
        for path, why in insecure_extenders(config):
            yield Finding(path, f"{why}; name a CA in tlsConfig")
    group_verbs = {trimmed(each.url_prefix): each.group_verb for each in extension.extenders}
    for index, extender in enumerate(config.extenders):
        group_verb = group_verbs.get(trimmed(extender.url_prefix), "")
        yield from _odd_extender(("extenders", index), extender, group_verb)
    if sum(bool(extender.bind_verb) for extender in config.extenders) > 1:
        text = "several extenders have a bindVerb; kube-scheduler refuses this"
        yield Finding(("extenders",), text)
    resolved = resolve(config.profiles, IN_TREE_CAPABILITIES).profiles
    for index, profile in enumerate(config.profiles):
        yield from _unprepared(("profiles", index, "plugins"), resolved[index])
        yield from _reset_weights(("profiles", index, "plugins"), profile)
        yield from _misspelt(("profiles", index), profile)
        ignored = ignored_by_scheduler(profile.scheduler_name)
        yield from _replaced_resources(("profiles", index, "pluginConfig"), profile, ignored)


def advise_extension(
    extension: AiokubeSchedulerConfiguration, config: KubeSchedulerConfiguration
) -> Findings:
    """All warnings about the second document."""
    extenders = {trimmed(each.url_prefix): each for each in config.extenders}
    for index, options in enumerate(extension.extenders):
        extender = extenders.get(trimmed(options.url_prefix))
        if extender is not None:
            yield from _odd_options(("extenders", index), options, extender)


def _odd_options(path: Path, options: ExtenderOptions, extender: Extender) -> Findings:
    ignored = ", ".join(r.name for r in extender.managed_resources if r.ignored_by_scheduler)
    asked = extender.filter_verb or extender.prioritize_verb or options.group_verb
    asks = extender.filter_verb or extender.prioritize_verb or extender.preempt_verb
    if options.release_verb and not asked:
        text = (
            "the extender has neither a filterVerb nor a prioritizeVerb: it hears of no placement"
        )
        yield Finding((*path, "releaseVerb"), text)
    yield from _odd_dry_runs((*path, "dryRun"), options, extender)
    if options.shadow:
        if asks and not options.dry_run.verbs:
            text = "is never called: dryRun does not name the verbs that reserve nothing"
            yield Finding((*path, "shadow"), text)
        if options.release_verb:
            yield Finding((*path, "shadow"), "the releaseVerb of a shadow is never called")
        if options.group_verb:
            yield Finding((*path, "shadow"), "the groupVerb of a shadow is never called")
        if extender.bind_verb:
            yield Finding((*path, "shadow"), "the bindVerb of a shadow is never called")
        if ignored:
            text = f"NodeResourcesFit checks {ignored}, because a shadow decides nothing"
            yield Finding((*path, "shadow"), text)
    elif ignored and options.selects:
        field = "podSelector" if options.pod_selector != LabelSelector() else "namespaceSelector"
        text = f"nothing checks {ignored} of pods that are not selected (ignoredByScheduler)"
        yield Finding((*path, field), text)


def _odd_dry_runs(path: Path, options: ExtenderOptions, extender: Extender) -> Findings:
    dry = options.dry_run
    names = dry.node_cache_capable
    reserves = {"serial: true": options.serial is True, "releaseVerb": bool(options.release_verb)}
    named = " and ".join(name for name, given in reserves.items() if given)
    same_form = names is None or names == extender.node_cache_capable
    counts = same_form and not options.shadow
    if named and counts and dry.filter_verb and dry.filter_verb == extender.filter_verb:
        verb = "are" if " and " in named else "is"
        text = f"is the call that counts, and {named} {verb} for extenders that reserve in it"
        yield Finding((*path, "filterVerb"), text)
    if dry.verbs and not dry.filter_verb and extender.filter_verb:
        yield Finding((*path, "filterVerb"), "is missing: a dry run does not filter")
    if dry.verbs and not dry.prioritize_verb and extender.prioritize_verb:
        yield Finding((*path, "prioritizeVerb"), "is missing: a dry run does not prioritize")


def _odd_extender(path: Path, extender: Extender, group_verb: str) -> Findings:
    if extender.enable_https and extender.url_prefix.lower().startswith("http:"):
        text = "urlPrefix decides: calls go over plain http all the same"
        yield Finding((*path, "enableHTTPS"), text)
    verbs = (
        extender.filter_verb,
        extender.preempt_verb,
        extender.prioritize_verb,
        extender.bind_verb,
        group_verb,
    )
    if not any(verbs):
        yield Finding(path, "the extender has no verb and will never be called")
    if extender.http_timeout.seconds > _LONG_SECONDS:
        text = f"a pod waits up to {extender.http_timeout} for a call that is not answered; 30s is enough for most"
        yield Finding((*path, "httpTimeout"), text)
    tls = extender.tls_config
    if tls is not None and bool(tls.cert_file or tls.cert_data) != bool(
        tls.key_file or tls.key_data
    ):
        text = "a client certificate is used only if both the certificate and its key are given"
        yield Finding((*path, "tlsConfig"), text)


def _reset_weights(path: Path, profile: KubeSchedulerProfile) -> Findings:
    """Listing a default plugin again without its weight makes the weight 1."""
    for point in ("multiPoint", "score"):
        for index, plugin in enumerate(profile.plugins.at(point).enabled):
            usual = DEFAULT_WEIGHTS.get(plugin.name, 0)
            if not plugin.weight and usual > 1:
                text = f"{plugin.name} is listed without a weight: it becomes 1, by default it is {usual}"
                yield Finding((*path, point, "enabled", index), text)


def _unprepared(path: Path, plugins: ResolvedPlugins) -> Findings:
    """Plugins enabled at a point but not where they prepare for it: kube-scheduler starts, and then fails pods."""
    for point, names in plugins.points.items():
        for name in names:
            need = PREPARED_AT.get(name, {}).get(point)
            if need is not None and name not in plugins.points[need]:
                text = f"{name} runs at {point} and cannot do without {need}, where it does not run: pods will fail"
                yield Finding((*path, need), text)


def _misspelt(path: Path, profile: KubeSchedulerProfile) -> Findings:
    """Unknown plugin names where kube-scheduler ignores them: in ``disabled`` and in pluginConfig."""
    known = enabled_names(merge_plugins(profile.plugins)) | DEFAULT_WEIGHTS.keys()
    uses: list[tuple[Path, str]] = [
        ((*path, "plugins", point, "disabled", index), plugin.name)
        for point in FIELD_OF_POINT
        for index, plugin in enumerate(profile.plugins.at(point).disabled)
    ]
    uses += [
        ((*path, "pluginConfig", index), entry.name)
        for index, entry in enumerate(profile.plugin_config)
    ]
    for where, name in uses:
        hint = closest(name, known)
        if name not in {"*", ""} and name not in known and name not in ARGS and hint:
            yield Finding(where, f"no plugin {show(name)} is enabled; did you mean {show(hint)}?")


def _replaced_resources(
    path: Path, profile: KubeSchedulerProfile, ignored: frozenset[str]
) -> Findings:
    """The extenders' list of ignored resources replaces the user's own.

    See docs/spec/extenders.md#order-and-side-effects.
    """
    for index, entry in enumerate(profile.plugin_config):
        if isinstance(entry.args, NodeResourcesFitArgs) and entry.args.ignored_resources:
            lost = set(entry.args.ignored_resources) - ignored
            if ignored and lost:
                text = "is replaced by the resources that extenders mark ignoredByScheduler; lost: "
                where = (*path, index, "args", "ignoredResources")
                yield Finding(where, text + ", ".join(sorted(lost)))
