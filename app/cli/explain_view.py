"""Prints an explanation of a pod on the terminal."""

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.model.features import OLDEST
from app.observe.explain import (
    ASSUMED,
    BOUND,
    GONE,
    NOT_OURS,
    Explanation,
    Feasibility,
    GroupExplanation,
    QueueMove,
    RankedNode,
    Waiting,
)
from app.observe.histories import (
    AttemptRecord,
    ExtenderCall,
    PreemptedBy,
    Rejection,
    ShadowCall,
)

_RESULTS: Final = {
    "bound": "green",
    "scheduled": "green",
    "waiting_on_preemption": "yellow",
    "decided": "yellow",
    "asking": "yellow",
    "unschedulable": "red",
    "error": "bold red",
}
_WAITING: Final = {
    "active": "is about to be tried",
    "in flight": "is being tried now",
    "backoff": "was rejected and will be tried again after a pause",
    "error backoff": "met an error and will be tried again after a pause",
    "unschedulable": "waits for a cluster event",
    "gated": "is not tried yet",
    "outside": "is not in the queue",
}


def view(
    explanation: Explanation, now: float, width: int, *, bodies: bool = False
) -> RenderableType:
    """All of it; ``now`` is in seconds since the epoch. With ``bodies`` also those of calls to extenders."""
    return Group(*_parts(explanation, now, width, bodies=bodies))


def _parts(
    explanation: Explanation, now: float, width: int, *, bodies: bool
) -> Iterator[RenderableType]:
    yield _head(explanation, now)
    if not explanation.leadership.leading:
        yield _standby(explanation)
    if explanation.group is not None:
        yield from _group(explanation.group, now)
    if explanation.attempts:
        yield _section("Attempts", _attempts(explanation.attempts, now))
        yield from _details(explanation.attempts[-1])
        if bodies:
            yield from _bodies(explanation.attempts)
    elif explanation.place != NOT_OURS:
        yield Text("\nNo attempt is recorded: none was made, or it was long ago.")
    if explanation.now is not None:
        yield from _feasibility(explanation.now, width)
    if explanation.moves:
        yield _section("Queue", _moves(explanation.moves, now))


def _head(explanation: Explanation, now: float) -> RenderableType:
    title = Text.assemble(("Pod ", ""), (f"{explanation.namespace}/{explanation.name}", "bold"))
    facts = _facts()
    facts.add_row("uid", explanation.uid)
    if explanation.scheduler_name:
        facts.add_row("scheduler", explanation.scheduler_name)
        facts.add_row("priority", str(explanation.priority))
    facts.add_row("where", where(explanation, now))
    for extender, limit in explanation.limits.items():
        pods = f"{limit} pod{'s' * (limit != 1)}"
        facts.add_row("extender", f"{extender}, which takes {pods} at a time")
    if explanation.rules not in {"", OLDEST}:
        facts.add_row("rules", f"those of kube-scheduler {explanation.rules}")
    if explanation.preempted is not None:
        facts.add_row("preempted", _preempted(explanation.preempted, now))
    if explanation.nominated_node:
        facts.add_row("nominated", explanation.nominated_node)
    return Group(title, Padding(facts, (0, 0, 0, 2)))


def _preempted(told: PreemptedBy, now: float) -> str:
    return f"by {told.preemptor} on {told.node}, {_ago(told.at, now)}"


def where(explanation: Explanation, now: float) -> str:
    """Where the pod is, and what it waits for; ``now`` is in seconds since the epoch."""
    place = explanation.place
    if place == BOUND:
        return f"bound to {explanation.node}"
    if place == ASSUMED:
        return f"assumed on {explanation.node}, being bound"
    if place == GONE:
        return "deleted; what follows is its history"
    if place == NOT_OURS:
        return f"left to the scheduler {explanation.scheduler_name!r}: none of this one's profiles"
    said = _WAITING.get(place, place)
    return said if explanation.waiting is None else f"{said}{_waits(explanation.waiting, now)}"


def _waits(waiting: Waiting, now: float) -> str:
    if waiting.gating_plugin:
        return f": {waiting.gating_plugin} says {waiting.gating_message}"
    said = f", {_ago(waiting.since, now)}"
    if waiting.backoff_until > now:
        said += f", for another {waiting.backoff_until - now:.0f} s"
    if waiting.rejectors:
        said += f"; rejected by {', '.join(waiting.rejectors)}"
    return said


def _standby(explanation: Explanation) -> Text:
    holder = explanation.leadership.holder or "no process"
    return Text(
        f"\nThis process is on standby and schedules no pods; {holder} leads. Ask the leader for attempts.",
        style="yellow",
    )


def _group(group: GroupExplanation, now: float) -> Iterator[RenderableType]:
    title = f"Pod group {group.name} ({group.kind})"
    if not group.read:
        yield _section(
            title,
            Text(
                "Groups of this kind are not read here: the API server does not serve them, or their feature gate "
                "is off. "
                "The pod is scheduled without its group."
            ),
        )
        return
    facts = _facts()
    if group.exists:
        needs = group.min_count
        facts.add_row("needs", f"{needs} pods together" if needs else "no other pods: basic policy")
    facts.add_row("has", f"{group.pods} pods, {group.scheduled} of them with a node")
    facts.add_row("waits for", group.waits_for or "nothing")
    if group.retry_at > now:
        facts.add_row("tried again", f"in {group.retry_at - now:.0f} s, or earlier after an event")
    elif group.waits_for:
        facts.add_row(
            "tried again", "when a pod, a node or its PodGroup changes so that it may help"
        )
    yield _section(title, facts)
    if group.cycles:
        cycles = _table("When", "Result", "Took", "Room for", "Because")
        for each in group.cycles:
            repeats = f" (x{each.repeats})" if each.repeats > 1 else ""
            cycles.add_row(
                _ago(each.at, now) + repeats,
                Text(each.result, style=_RESULTS.get(each.result, "")),
                _milliseconds(each.seconds),
                f"{each.placed} of {each.tried}",
                ", ".join(filter(None, (each.message, each.because))),
            )
        yield _section("Its last cycles", cycles)
        if domains := group.cycles[-1].domains:
            table = _table("Domain", "Room for", "Because")
            for domain in domains:
                because = domain.because if domain.tried else "not tried: too little room"
                bound = "" if domain.tried else "at most "
                table.add_row(domain.name, f"{bound}{domain.room}", because)
            yield _section("The domains with the most room, in the last cycle", table)
    members = _table("Pod", "Where", "Because")
    for member in group.members:
        where = f"{member.place} on {member.node}" if member.node else member.place
        members.add_row(member.pod, where, member.message)
    left = group.pods - len(group.members)
    yield _section(f"Its pods (without {left} more)" if left > 0 else "Its pods", members)


def _attempts(attempts: Sequence[AttemptRecord], now: float) -> Table:
    table = _table("#", "When", "Result", "Took", "What")
    table.columns[-1].overflow = "fold"
    for attempt in attempts:
        number = str(attempt.number)
        if attempt.repeats > 1:
            number += f" (x{attempt.repeats})"
        table.add_row(
            number,
            _ago(attempt.at, now),
            Text(attempt.result, style=_RESULTS.get(attempt.result, "")),
            _milliseconds(attempt.seconds or attempt.deciding_seconds),
            _what(attempt),
        )
    return table


def _what(attempt: AttemptRecord) -> str:
    if attempt.message:
        said = attempt.message
        if attempt.nominated_node:
            said += f" {_room(attempt)}"
        return said
    if attempt.node:
        return f"{attempt.node}, one of {attempt.feasible} feasible nodes of {attempt.evaluated}"
    return ""


def _room(attempt: AttemptRecord) -> str:
    """The preemption for a nominated pod."""
    if not attempt.victims:
        return f"It is nominated for {attempt.nominated_node}."
    pods = "1 pod" if attempt.victims == 1 else f"{attempt.victims} pods"
    named = ", ".join(attempt.victim_pods)
    more = attempt.victims - len(attempt.victim_pods)
    if more:
        named += f" and {more} more"
    return f"Room is made on {attempt.nominated_node} by evicting {pods}: {named}."


def _details(attempt: AttemptRecord) -> Iterator[RenderableType]:
    """Details of the last attempt."""
    if attempt.refusals:
        yield _section("Rejected by, in the last attempt", _refusals(attempt.refusals))
    if attempt.calls:
        yield _section("Calls to extenders in the last attempt", _calls(attempt.calls))
    if attempt.shadows:
        yield _section("Extenders in shadow, which decide nothing", _shadows(attempt.shadows))
    if attempt.steps:
        table = _table("Step", "Result", "Took")
        for step in attempt.steps:
            table.add_row(step.name, step.status, _milliseconds(step.seconds))
        yield _section("Binding", table)


def _refusals(refusals: Iterable[Rejection]) -> Table:
    table = _table("Nodes", "By", "Because")
    table.columns[0].justify = "right"
    for refusal in refusals:
        reasons = ", ".join(refusal.reasons) or "(left out without a reason)"
        table.add_row(str(refusal.nodes), refusal.plugin or "-", reasons)
    return table


def _calls(calls: Iterable[ExtenderCall]) -> Table:
    table = _table("Extender", "Verb", "Outcome", "Took", "Sent", "Received", "Nodes rejected")
    for call in calls:
        outcome = Text(call.outcome, style="green" if call.outcome == "success" else "red")
        if call.ignored_error:
            outcome.append(f" (ignored: {call.ignored_error})", style="yellow")
        table.add_row(
            call.extender,
            call.verb,
            outcome,
            _milliseconds(call.seconds),
            f"{call.sent} B",
            f"{call.received} B",
            str(call.dropped or ""),
        )
    return table


def _bodies(attempts: Iterable[AttemptRecord]) -> Iterator[RenderableType]:
    """The bodies of calls to extenders, as far as the scheduler has them."""
    kept = [(each.number, call, call.bodies) for each in attempts for call in each.calls]
    found = False
    for number, call, bodies in kept:
        if bodies is not None:
            found = True
            about = f"attempt {number}, {call.verb} of {call.extender}"
            for title, body, size in (
                ("Sent in", bodies.request, call.sent),
                ("Received in", bodies.answer, call.received),
            ):
                yield _section(f"{title} {about}: {size} B", Text(body, overflow="fold"))
    if kept and not found:
        yield Text(
            "\nNo bodies of these calls are kept: extenderBodies.calls in the second document of the "
            "scheduler's configuration says how many are.",
            style="yellow",
        )


def _shadows(calls: Iterable[ShadowCall]) -> Table:
    table = _table("Extender", "Verb", "Compared with the decision", "Nodes kept", "Because")
    for call in calls:
        result = Text(call.result, style="green" if call.result == "same" else "yellow")
        kept = "" if call.kept is None else f"{call.kept} of {call.nodes}"
        table.add_row(call.extender, call.verb, result, kept, call.detail)
    return table


def _feasibility(now: Feasibility, width: int) -> Iterator[RenderableType]:
    said = f"{now.feasible} of {now.evaluated} nodes are feasible"
    title = f"If it were tried now, without extenders: {said}"
    if now.top:
        yield _section(title, _scores(now.top, width))
    else:
        yield _section(title, Text(now.message))
    if now.refusals:
        yield _section("Rejected by, if it were tried now", _refusals(now.refusals))


def _scores(top: Sequence[RankedNode], width: int) -> Table:
    """A table with a column per plugin if there is room, else with one for all."""
    plugins = list(top[0].scores)
    needed = sum(map(len, plugins)) + 3 * len(plugins) + 20 + max(len(each.node) for each in top)
    if needed > width:
        table = _table("Node", "Total", "Of which")
        for each in top:
            shares = ", ".join(f"{plugin} {score}" for plugin, score in each.scores.items())
            table.add_row(each.node, str(each.total), shares)
        return table
    table = _table("Node", "Total", *plugins)
    for column in table.columns[1:]:
        column.justify = "right"
    for each in top:
        table.add_row(each.node, str(each.total), *(str(each.scores[p]) for p in plugins))
    return table


def _moves(moves: Iterable[QueueMove], now: float) -> Table:
    table = _table("When", "Because of", "To")
    for move in moves:
        table.add_row("" if move.at is None else _ago(move.at, now), move.event, move.place)
    return table


# ---------------------------------------------------------------- pieces


def _section(title: str, body: RenderableType) -> Group:
    return Group(Text(f"\n{title}", style="bold"), Padding(body, (0, 0, 0, 2)))


def _facts() -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 10 else f"{seconds:.1f} s"


def _ago(at: float, now: float) -> str:
    """The time of day, and how long ago that was."""
    clock = dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M:%SZ")
    gone = max(0.0, now - at)
    span = (
        f"{gone:.0f} s"
        if gone < 120
        else f"{gone / 60:.0f} min"
        if gone < 7200
        else f"{gone / 3600:.0f} h"
    )
    return f"{clock} ({span} ago)"
