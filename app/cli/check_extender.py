"""The command ``check-extender``: calls extenders as the scheduler would and prints problems of their answers."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from app.cli.flags import read_seconds
from app.cli.process import explained, printable, printable_json, run_loop
from app.extender.config import (
    ExtenderConfig,
    ExtenderConfigError,
    ManagedResource,
    TLSConfig,
    Verb,
)
from app.scheduler.extenders import extender_configs
from app.scheduler.trace import TraceError
from app.settings.load import load
from app.settings.problems import ConfigurationError
from app.sim.manifests import ManifestError, load_all_yaml
from app.tools.check_extender import CheckOptions, ExtenderReport, check
from app.tools.extender_checks import Exchange, Severity
from app.tools.extender_samples import Manifest, SampleObjects, from_manifests, made_up
from app.tools.replay.calls import RepeatedCalls, extenders_of, repeat_calls
from app.wire.envelope import DecodeError

_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_MARKS: Final = {
    Severity.ERROR: click.style("ERROR  ", fg="red", bold=True),
    Severity.WARNING: click.style("WARNING", fg="yellow"),
    Severity.NOTE: "note   ",
}


@click.command("check-extender")
@click.option("--config", type=_FILE, help="Check every extender of this configuration file.")
@click.option("--url", default="", metavar="URL", help="Check the extender with this urlPrefix.")
@click.option("--filter-verb", default="", metavar="PATH")
@click.option("--prioritize-verb", default="", metavar="PATH")
@click.option("--preempt-verb", default="", metavar="PATH")
@click.option("--bind-verb", default="", metavar="PATH")
@click.option("--release-verb", default="", metavar="PATH")
@click.option("--group-verb", default="", metavar="PATH")
@click.option("--node-cache-capable", is_flag=True, help="It is sent names, not whole nodes.")
@click.option("--managed-resource", default="", metavar="NAME", help="The pod requests it.")
@click.option(
    "--http-timeout",
    default="5s",
    show_default=True,
    metavar="DURATION",
    help="Timeout of a call.",
)
@click.option("--ca-file", default="", metavar="FILE", help="Authorities of its certificate.")
@click.option("--cert-file", default="", metavar="FILE", help="Client certificate.")
@click.option("--key-file", default="", metavar="FILE", help="Its key.")
@click.option("--insecure", is_flag=True, help="Do not verify its certificate.")
@click.option("--bearer-token-file", default="", metavar="FILE")
@click.option("--pod", type=_FILE, help="Send this pod (a manifest) instead of a generated one.")
@click.option("--nodes", type=_FILE, help="Send these nodes: 'kubectl get nodes -o yaml'.")
@click.option(
    "--large",
    default=1000,
    show_default=True,
    metavar="N",
    help="Nodes in a large request, of 7 KB each where whole nodes are sent; 0: none.",
)
@click.option(
    "--side-by-side",
    default=16,
    show_default=True,
    metavar="N",
    help="Calls of prioritize, or of a filter that does not reserve, at the same time; 0: none.",
)
@click.option("--bind", is_flag=True, help="Call bind too, with a pod that does not exist.")
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="TRACE",
    help="Put the calls of a recording ('run --record') instead, and print where the answers differ.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.pass_context
def _check_extender(
    context: click.Context,
    /,
    config: Path | None,
    pod: Path | None,
    nodes: Path | None,
    replay: Path | None,
    **given: Any,
) -> None:
    """Call extenders as the scheduler would, in both node forms, and print the problems.

    Either all extenders of a configuration file (--config), or the one at --url with its verbs. Extenders that reserve
    something while they filter reserve it for the pod that is sent. Exits with 1 if pods could not be scheduled with an
    extender, with --replay if an answer differs.
    """
    if replay is not None:
        with explained(ConfigurationError, ExtenderConfigError, TraceError):
            repeated = _repeated(replay, _configs(config, given))
        click.echo(_calls_as_json(repeated) if given["output"] == "json" else _calls(repeated))
        context.exit(1 if any(each.kinds for each in repeated) else 0)
    with explained(ConfigurationError, ExtenderConfigError, ManifestError, DecodeError):
        configs = _configs(config, given)
        objects = (_objects(pod, "Pod"), _objects(nodes, "Node"))
        options = CheckOptions(
            large=given["large"], side_by_side=given["side_by_side"], bind=given["bind"]
        )
        reports = [run_loop(check(c, _sample_objects(c, *objects), options)) for c in configs]
    click.echo(_as_json(reports) if given["output"] == "json" else _as_text(reports), nl=False)
    context.exit(1 if any(report.count(Severity.ERROR) for report in reports) else 0)


def _configs(file: Path | None, given: dict[str, Any]) -> list[ExtenderConfig]:
    if (file is None) is not bool(given["url"]):
        raise click.UsageError("give either --config FILE, or --url URL with the verbs")
    verbs = {verb: str(given[f"{verb}_verb"]) for verb in Verb}
    if file is None:
        return [_config_of_flags(given, verbs)]
    if any(verbs.values()):
        raise click.UsageError("with --config the verbs are those of the file")
    configs = extender_configs(load(file).settings)
    if not configs:
        raise click.UsageError(f"{file} has no extenders")
    return configs


def _config_of_flags(given: dict[str, Any], verbs: Mapping[Verb, str]) -> ExtenderConfig:
    if not any(verbs.values()):
        raise click.UsageError("name the verbs to call: --filter-verb filter, ...")
    files = {name: given[name] for name in ("ca_file", "cert_file", "key_file")}
    tls = TLSConfig(insecure=given["insecure"], **files)
    resource = given["managed_resource"]
    return ExtenderConfig(
        url_prefix=given["url"],
        weight=1,
        tls=tls if given["insecure"] or any(files.values()) else None,
        http_timeout=read_seconds(given["http_timeout"]),
        node_cache_capable=given["node_cache_capable"],
        managed_resources=(ManagedResource(resource),) if resource else (),
        bearer_token_file=given["bearer_token_file"],
        filter_verb=verbs[Verb.FILTER],
        prioritize_verb=verbs[Verb.PRIORITIZE],
        preempt_verb=verbs[Verb.PREEMPT],
        bind_verb=verbs[Verb.BIND],
        release_verb=verbs[Verb.RELEASE],
        group_verb=verbs[Verb.GROUP],
    )


# ---------------------------------------------------------------- recorded calls


def _repeated(trace: Path, configs: Sequence[ExtenderConfig]) -> list[RepeatedCalls]:
    """What the recorded calls give. Raises TraceError, ExtenderConfigError."""
    recorded = extenders_of(trace)
    if not recorded:
        raise TraceError(f"{trace}: no extender was called")
    found = []
    for number, config in enumerate(configs):
        known = config.name in recorded
        if not known and (number >= len(recorded) or len(configs) != len(recorded)):
            told = ", ".join(recorded)
            raise TraceError(f"{trace}: no calls to {config.name} are recorded, but to {told}")
        name = config.name if known else recorded[number]
        found.append(run_loop(repeat_calls(trace, config, name)))
    return found


def _calls(found: Sequence[RepeatedCalls]) -> str:
    lines = []
    for each in found:
        lines.append(click.style(f"extender {each.extender}: {each.calls} calls", bold=True))
        before, now = 1000 * each.recorded_seconds, 1000 * each.seconds
        lines.append(
            f"  half of them took at most {now:.0f} ms, {before:.0f} ms when they were recorded"
        )
        lines += [f"  {count} not repeated: {why}" for why, count in each.left_out.items()]
        for kind, count in each.kinds.items():
            lines.append(f"  {click.style(kind, fg='red', bold=True)}: {_counted(count, 'answer')}")
            lines += [
                f"    {printable(e.about)}: {printable(e.recorded)} -> {printable(e.now)}"
                for e in each.examples
                if e.kind == kind
            ]
        if not each.kinds:
            lines.append("  every answer is as recorded")
        if each.incomplete:
            lines.append(f"  {_MARKS[Severity.WARNING]} {printable(each.incomplete)}")
    return "\n".join(lines)


def _calls_as_json(found: Sequence[RepeatedCalls]) -> str:
    value = printable_json([msgspec.to_builtins(each) for each in found])
    return msgspec.json.format(msgspec.json.encode(value)).decode()


# ---------------------------------------------------------------- pod and nodes to send


def _sample_objects(
    config: ExtenderConfig, pods: Sequence[Manifest], nodes: Sequence[Manifest]
) -> SampleObjects:
    resources = config.managed_resources
    samples = made_up(resources[0].name if resources else "")
    return from_manifests(samples, pods[0] if pods else None, nodes)


def _objects(file: Path | None, kind: str) -> list[Manifest]:
    """The objects of a kind in a file. Raises ManifestError if there are none."""
    if file is None:
        return []
    try:
        documents = load_all_yaml(file.read_bytes())
    except OSError as error:
        raise ManifestError(f"{file}: {error.strerror}") from error
    except ManifestError as error:
        raise ManifestError(f"{file}: {error}") from error
    found = [each for each in _unpacked(documents) if each.get("kind", kind) == kind]
    if not found:
        raise ManifestError(f"{file}: there is no {kind} in it")
    return found


def _unpacked(documents: Sequence[Any]) -> Iterator[Manifest]:
    for document in documents:
        if isinstance(document, dict):
            items = document.get("items")
            yield from items if isinstance(items, list) else [document]


# ---------------------------------------------------------------- output


def _as_text(reports: Sequence[ExtenderReport]) -> str:
    return "\n".join("".join(f"{line}\n" for line in _lines(report)) for report in reports)


def _lines(report: ExtenderReport) -> Iterator[str]:
    config = report.config
    capable = str(config.node_cache_capable).lower()
    yield click.style(f"extender {config.name} (nodeCacheCapable: {capable})", bold=True)
    for exchange in report.exchanges:
        yield f"  {exchange.about}: {_outcome(exchange)}"
    for finding in sorted(report.findings, key=lambda f: list(Severity).index(f.severity)):
        about = f"{finding.about}: " if finding.about else ""
        yield f"  {_MARKS[finding.severity]} {about}{printable(finding.text)}"
    errors, warnings = (report.count(s) for s in (Severity.ERROR, Severity.WARNING))
    yield f"  {_counted(errors, 'error')}, {_counted(warnings, 'warning')}"


def _outcome(exchange: Exchange) -> str:
    took = f"{exchange.seconds * 1000:.0f} ms"
    if exchange.failure:
        return f"no answer after {took}"
    sizes = f"{exchange.sent} bytes sent, {len(exchange.body)} received"
    return f"status {exchange.status} after {took}, {sizes}"


def _counted(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _as_json(reports: Sequence[ExtenderReport]) -> str:
    value = [
        {
            "extender": report.config.name,
            "errors": report.count(Severity.ERROR),
            "warnings": report.count(Severity.WARNING),
            "findings": [
                dataclasses.asdict(finding) | {"text": printable(finding.text)}
                for finding in report.findings
            ],
        }
        for report in reports
    ]
    return msgspec.json.format(msgspec.json.encode(value)).decode() + "\n"


command: Final = _check_extender
