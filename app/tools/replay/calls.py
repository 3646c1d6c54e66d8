"""Puts the recorded calls to an extender to one that runs, and finds where its answers differ
(``check-extender --replay``).

Asked are filter and prioritize, one call after another in the recorded order, with the pod and the nodes as far as they
were recorded.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import msgspec

from app.extender.answers import retry_after
from app.extender.client import token_file, transport_for
from app.extender.config import ExtenderConfig, Verb
from app.extender.errors import CallOutcome, TransportError
from app.extender.exchange import ExtenderResponse
from app.extender.tls import TLSSource
from app.scheduler.trace import Op, TraceError
from app.tools.replay.cassette import RecordedCall, read_call
from app.tools.replay.reading import Objects, pod_json, records
from app.wire.extender_v1 import FILTER_BY_NAME, PRIORITIZE, AnswerError, Body, FilterAnswer

#: Examples of each kind of difference.
MOST_EXAMPLES: Final = 3
#: Answers are slower if they take so many times as long, and so many seconds more.
_SLOWER, _NOTICED = 2.0, 0.02
_REPEATED: Final = frozenset({Verb.FILTER, Verb.PRIORITIZE})
_LOST: Final = frozenset(
    {CallOutcome.TIMEOUT, CallOutcome.UNREACHABLE, CallOutcome.BROKEN, CallOutcome.STALE}
)
_TOLD: Final = 200
_json: Final = msgspec.json.Encoder().encode


class CallDifference(NamedTuple):
    """Where an answer differs."""

    kind: str
    #: The call: ``filter of default/web-7``.
    about: str
    recorded: str
    now: str


class RepeatedCalls(msgspec.Struct):
    """What the calls to one extender gave."""

    extender: str
    calls: int = 0
    #: Recorded calls that were not repeated, by the reason.
    left_out: dict[str, int] = {}
    #: Differences by kind.
    kinds: dict[str, int] = {}
    examples: list[CallDifference] = []
    recorded_seconds: float = 0.0
    seconds: float = 0.0
    #: Why not all of the recording was read; empty if it was.
    incomplete: str = ""


class RecordedQuestion(NamedTuple):
    """A recorded call with what was asked."""

    call: RecordedCall
    pod: str
    body: Body


def extenders_of(trace: Path) -> list[str]:
    """The names of the extenders that were called. Raises TraceError if nothing can be read."""
    found: dict[str, None] = {}
    try:
        for record in records(trace):
            if len(record.fields) > 2 and record.fields[0] == Op.CALL:
                found[str(record.fields[2])] = None
    except TraceError:
        if not found:
            raise
    return list(found)


def questions(
    trace: Path, extender: str, *, whole: bool, left_out: Counter[str]
) -> Iterator[RecordedQuestion]:
    """The calls of filter and prioritize to an extender; ``whole``: with whole nodes. Raises TraceError."""
    objects, names = Objects(), dict[int, bytes]()
    for record in records(trace):
        objects.take(record)
        match record.fields:
            case [Op.NAMES, int(number), bytes(text)]:
                names[number] = text
            case [Op.CALL, *_] if (call := read_call(record.fields, names)) is not None:
                if call.extender == extender:
                    found = _question(call, objects, whole=whole)
                    if isinstance(found, str):
                        left_out[found] += 1
                    else:
                        yield found


def _question(call: RecordedCall, objects: Objects, *, whole: bool) -> RecordedQuestion | str:
    """The question, or why it cannot be put once more."""
    if call.verb not in _REPEATED:
        return f"the verb is {call.verb}"
    if call.outcome is CallOutcome.CANCELLED:
        return "the call was cancelled"
    pod = objects.pods.get(call.uid)
    if pod is None or call.names is None:
        return "the pod or the nodes are not in the recording"
    value = _json(pod_json(pod))
    if whole:
        nodes = [objects.present.get(("Node", name)) for name in call.names]
        if not all(isinstance(node, bytes) for node in nodes):
            return "the pod or the nodes are not in the recording"
        items = b",".join(node for node in nodes if isinstance(node, bytes))
        pieces = (b'{"Pod":', value, b',"Nodes":{"metadata":{},"items":[', items)
        body = Body((*pieces, b']},"NodeNames":null}'))
    else:
        body = Body((b'{"Pod":', value, b',"Nodes":null,"NodeNames":', _json(call.names), b"}"))
    return RecordedQuestion(call, f"{pod.record.namespace}/{pod.record.name}", body)


async def repeat_calls(
    trace: Path, config: ExtenderConfig, recorded: str, environ: Mapping[str, str] = os.environ
) -> RepeatedCalls:
    """Puts the calls to the extender ``recorded`` to the one of ``config``. Raises TraceError, ExtenderConfigError."""
    found = RepeatedCalls(config.name)
    transport = transport_for(config, TLSSource(config), environ)
    token = token_file(config)
    now = asyncio.get_running_loop().time
    left_out: Counter[str] = Counter()
    took: dict[Verb, list[tuple[float, float]]] = {}
    try:
        for asked in questions(
            trace, recorded, whole=not config.node_cache_capable, left_out=left_out
        ):
            if not config.path(asked.call.verb):
                left_out[f"{asked.call.verb} is not configured"] += 1
                continue
            headers = {} if token is None else {"Authorization": f"Bearer {token.token(now())}"}
            began, answer = now(), None
            failure = ""
            try:
                answer = await transport.post(
                    config.url(asked.call.verb),
                    asked.body,
                    headers=headers,
                    timeout_seconds=config.timeout,
                )
            except TransportError as error:
                failure = error.text
            took.setdefault(asked.call.verb, []).append((asked.call.seconds, now() - began))
            found.calls += 1
            for difference in differences(asked, answer, failure):
                found.kinds[difference.kind] = found.kinds.get(difference.kind, 0) + 1
                if found.kinds[difference.kind] <= MOST_EXAMPLES:
                    found.examples.append(difference)
    except TraceError as error:
        if not found.calls:
            raise
        found.incomplete = str(error)
    finally:
        await transport.close()
    found.left_out = dict(left_out)
    _compare_speed(found, took)
    return found


def _compare_speed(
    found: RepeatedCalls, took: Mapping[Verb, Sequence[tuple[float, float]]]
) -> None:
    """Notes how long half of the calls took, and each verb that takes longer than it did."""
    both = [each for times in took.values() for each in times]
    if both:
        found.recorded_seconds = round(median(before for before, _ in both), 4)
        found.seconds = round(median(now for _, now in both), 4)
    for verb, times in took.items():
        before, after = (median(each) for each in zip(*times, strict=True))
        limit = max(before * _SLOWER, before + _NOTICED)
        if after > limit:
            late = sum(now > limit for _, now in times)
            found.kinds["slower"] = found.kinds.get("slower", 0) + late
            texts = f"{before:.3f} s", f"{after:.3f} s"
            found.examples.append(CallDifference("slower", f"half of all {verb}", *texts))


# ---------------------------------------------------------------- differences


def differences(
    asked: RecordedQuestion, answer: ExtenderResponse | None, failure: str
) -> Iterator[CallDifference]:
    """Where the answer to a question differs from the recorded one, by kind; ``failure``: why there is no answer."""
    call = asked.call
    about = f"{call.verb} of {asked.pod}"

    def differ(kind: str, recorded: object, now: object) -> CallDifference:
        return CallDifference(kind, about, str(recorded)[:_TOLD], str(now)[:_TOLD])

    was_lost = call.outcome in _LOST
    if answer is None or was_lost:
        if (answer is None) is not was_lost:
            yield differ("no answer", call.outcome, failure or "an answer")
        return
    before = call.status or 200
    if answer.status != before:
        yield differ("status", before, answer.status)
    if answer.status != 200 or before != 200:
        return
    later = retry_after(answer.headers)
    if later != call.retry_after:
        yield differ("Retry-After", call.retry_after, later)
    if call.answer:  # a large answer is not recorded
        for kind, one, other in _bodies(call, answer.body):
            yield differ(kind, one, other)


_Found = Iterator[tuple[str, object, object]]


def _bodies(call: RecordedCall, body: bytes) -> _Found:
    recorded, now = _read(call.verb, call.answer), _read(call.verb, body)
    if isinstance(recorded, AnswerError) or isinstance(now, AnswerError):
        if str(recorded) != str(now):
            yield "unreadable", _told(recorded), _told(now)
        return
    compare = _filters if call.verb is Verb.FILTER else _scores
    yield from compare(call.names or [], recorded, now)


def _told(answer: Any) -> str:
    return str(answer) if isinstance(answer, AnswerError) else "an answer"


def _read(verb: Verb, body: bytes) -> Any:
    """The answer, or why it cannot be read."""
    try:
        return (FILTER_BY_NAME if verb is Verb.FILTER else PRIORITIZE).at_once(body)
    except AnswerError as error:
        return error


def _filters(names: Sequence[str], recorded: FilterAnswer, now: FilterAnswer) -> _Found:
    if recorded.error != now.error:
        yield "error", recorded.error or "none", now.error or "none"
    if recorded.error or now.error:
        return
    if (recorded.node_names is None) is not (now.node_names is None):
        yield "form", _form(recorded), _form(now)
    before, after = _kept(recorded), _kept(now)
    sent, was, left = set(names), set(before), set(after)
    for kind, found in (
        ("stranger", left - sent - was),
        ("accepts", (left & sent) - was),
        ("rejects", was - left),
    ):
        if found:
            stayed = kind == "rejects"
            yield (
                kind,
                f"{_some(found)} {'accepted' if stayed else 'rejected'}",
                (f"{_some(found)} {'rejected' if stayed else 'accepted'}"),
            )
    if len(before) == len(was) and len(after) > len(left):
        yield "repeats", f"{len(before)} nodes", f"{len(after)} nodes, {len(left)} different ones"
    if was == left and len(after) == len(before) and before != after:
        yield "order", _some(before), _some(after)
    both = [name for name in names if name not in was | left]
    yield from _reasons(both, recorded, now)


def _reasons(rejected: Sequence[str], recorded: FilterAnswer, now: FilterAnswer) -> _Found:
    """For nodes that both answers reject."""
    helps = [n for n in rejected if _unresolvable(n, recorded) != _unresolvable(n, now)]
    if helps:
        text = f"{_some(helps)}: preemption "
        yield "preemption", text + _helps(helps[0], recorded), text + _helps(helps[0], now)
    for name in rejected:
        before, after = _reason(name, recorded), _reason(name, now)
        if before != after:
            yield "reason", f"{name}: {before}", f"{name}: {after}"
            return


def _helps(name: str, answer: FilterAnswer) -> str:
    return "does not help" if _unresolvable(name, answer) else "may help"


def _unresolvable(name: str, answer: FilterAnswer) -> bool:
    return name in answer.failed_and_unresolvable or name not in answer.failed


def _reason(name: str, answer: FilterAnswer) -> str:
    return answer.failed.get(name) or answer.failed_and_unresolvable.get(name) or "no reason"


def _kept(answer: FilterAnswer) -> list[str]:
    return (answer.node_names if answer.node_names is not None else answer.nodes) or []


def _form(answer: FilterAnswer) -> str:
    return "Nodes" if answer.node_names is None else "NodeNames"


def _scores(
    names: Sequence[str],
    recorded: tuple[list[str], list[int]],
    now: tuple[list[str], list[int]],
) -> _Found:
    before = dict(zip(*recorded, strict=True))
    after = dict(zip(*now, strict=True))
    if strangers := after.keys() - set(names) - before.keys():
        yield "stranger", "not scored", f"{_some(strangers)} scored"
    if missing := before.keys() - after.keys():
        yield "unscored", f"{_some(missing)} scored", f"{_some(missing)} not scored"
    if len(now[0]) > len(after):
        yield "repeats", f"{len(recorded[0])} scores", f"{len(now[0])} scores, {len(after)} nodes"
    other = [name for name in before if name in after and before[name] != after[name]]
    if other:
        name = other[0]
        text = f" and {len(other) - 1} others" if len(other) > 1 else ""
        yield "score", f"{name}: {before[name]}", f"{name}: {after[name]}{text}"


def _some(names: Any) -> str:
    listed = sorted(names) if isinstance(names, set) else list(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
