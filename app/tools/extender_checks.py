"""Finds problems in an extender's answers (the ``check-extender`` command).

Everything here is a function of exchanges as they were on the wire; nothing is sent. The criterion is how
kube-scheduler reads answers (docs/spec/extenders.md#messages): an ERROR prevents pods from being scheduled, a WARNING
works but not as expected, a NOTE is information.
"""

import dataclasses
import enum
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from app.extender.answers import excerpt
from app.extender.client import SCORE_SCALE
from app.extender.config import Verb
from app.settings.defaults import DEFAULT_MULTI_POINT, IN_TREE_CAPABILITIES
from app.wire import extender_v1 as wire
from app.wire.extender_v1 import AnswerError
from app.wire.go_json import first_value
from app.wire.group_v1 import GroupArgs, GroupReader

#: By convention; the scheduler multiplies scores by 10 and the weight, without a limit.
HIGHEST_SCORE: Final = 10
#: What the default plugins add to the total of a node at most: 100 for each, times its weight.
PLUGINS_AT_MOST: Final = 100 * sum(
    weight or 1 for name, weight in DEFAULT_MULTI_POINT if "score" in IN_TREE_CAPABILITIES[name]
)
#: Seconds below which a call alone is not told from another, and below which nobody notices.
_SHORTEST: Final = 0.001
_NOTICED: Final = 1.0
#: Times as long as one alone from which on calls side by side get in each other's way.
_GROWTH: Final = 3
_SEVERAL: Final = 2
_LOCKED: Final = re.compile(r"\block(ed|s)?\b|\bmutex\b", re.IGNORECASE)
_SHOWN: Final = 3


class Severity(enum.StrEnum):
    """Severity of a finding."""

    ERROR = "ERROR"
    WARNING = "WARNING"
    NOTE = "note"


ERROR, WARNING, NOTE = Severity
#: A finding about the exchange at hand.
_Found = tuple[Severity, str]


@dataclasses.dataclass(frozen=True, slots=True)
class CheckFinding:
    """One problem, or information."""

    severity: Severity
    #: The call, such as ``filter, 3 names``; empty if it concerns the whole extender.
    about: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """A call and its answer."""

    verb: Verb
    #: Whether whole objects were sent, else names or uids.
    whole: bool
    #: The nodes sent, in order.
    names: Sequence[str]
    #: Bytes of the request.
    sent: int
    seconds: float = 0.0
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    body: bytes = b""
    #: The method and URL after redirects; empty without.
    redirected: str = ""
    #: The error in Go's words if there is no answer; else empty.
    failure: str = ""
    #: Whether the connection broke after the request was sent.
    hung_up: bool = False
    #: The victims sent: node name -> uids.
    victims: Mapping[str, Sequence[str]] = dataclasses.field(default_factory=dict)
    #: The arguments of the group verb.
    group: GroupArgs | None = None

    @property
    def about(self) -> str:
        """The call in a few words, such as ``filter, 3 names``."""
        if self.verb in {Verb.BIND, Verb.RELEASE}:
            return str(self.verb)
        count = len(self.names)
        if self.verb is Verb.GROUP:
            return f"{self.verb}, 2 pods, {_number(count, 'name')}"
        if self.verb is Verb.PREEMPT:
            form = "whole victims" if self.whole else "victims by UID"
            return f"{self.verb}, {_number(count, 'node')}, {form}"
        return f"{self.verb}, {_number(count, 'whole node' if self.whole else 'name')}"

    @property
    def answered(self) -> bool:
        """Whether there is an answer that a scheduler reads."""
        return not self.failure and self.status == 200


def examine(exchange: Exchange, *, timeout: float) -> list[CheckFinding]:
    """The findings about one exchange. ``timeout``: httpTimeout in seconds."""
    found = [*_speed(exchange, timeout), *_status(exchange)]
    if exchange.answered:
        found += _body(exchange)
    if any(_LOCKED.search(text) for _, text in found):
        found.append((NOTE, "it locks: calls about the same node at the same time may be refused"))
    return [CheckFinding(severity, exchange.about, text) for severity, text in found]


def has_errors(findings: Iterable[CheckFinding]) -> bool:
    """Whether any finding prevents pods from being scheduled."""
    return any(finding.severity is ERROR for finding in findings)


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _some(names: Iterable[object]) -> str:
    """The first few names, quoted."""
    listed = [json.dumps(name, ensure_ascii=False) for name in names]
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(listed[:_SHOWN]) + more


# ---------------------------------------------------------------- the exchange

_STATUS_HINTS: Final = {
    301: "without saying where it redirects to",
    400: "it could not read the request, or uses 400 for an ordinary no: that belongs into FailedNodes",
    401: "it wants credentials: a bearerTokenFile, or a client certificate in tlsConfig",
    403: "it wants other credentials",
    404: "is the path of this verb right?",
    405: "is this the path of the verb? It must take POST",
    411: "it does not take requests with Content-Length",
    413: "its limit for request bodies is too low; raise it, or send names (nodeCacheCapable: true)",
    415: "it does not take Content-Type application/json",
}


def _redirect_hint(exchange: Exchange) -> str:
    why = "301, 302 and 303 make a GET of the POST; " if exchange.redirected[:3] == "GET" else ""
    return f"{why}give the address it redirects to"


def _status(exchange: Exchange) -> Iterator[_Found]:
    if exchange.failure:
        why = " (it hung up: perhaps its handler crashed)" if exchange.hung_up else ""
        yield ERROR, f"no answer: {exchange.failure}{why}"
        return
    if exchange.status == 200:
        if exchange.redirected:
            text = f"redirects each call to {exchange.redirected}: {_redirect_hint(exchange)}"
            yield WARNING, text
        return
    said = excerpt(exchange.body)
    if exchange.verb is Verb.BIND and exchange.status == 500 and "not found" in said.lower():
        text = "rejected with status 500, as it should be for a pod that does not exist"
        yield NOTE, f"{text}; an Error with status 200 would be shown with the pod: {said}"
        return
    text = f"answers with status {exchange.status}, anything but 200 is an error"
    hint = _STATUS_HINTS.get(exchange.status, "")
    if exchange.redirected:
        text = f"redirects to {exchange.redirected}, which {text}"
        hint = _redirect_hint(exchange)
    if hint:
        text = f"{text} ({hint})"
    yield ERROR, f"{text}. It said: {said}" if said else f"{text}. It said nothing"


def _speed(exchange: Exchange, timeout: float) -> Iterator[_Found]:
    taken = f"took {exchange.seconds:.1f} s"
    if not exchange.failure and exchange.seconds > timeout / 2:
        yield WARNING, f"{taken}, of {timeout:g} s that httpTimeout allows"
    elif not exchange.failure and exchange.seconds > 1:
        yield NOTE, f"{taken}: each pod waits as long, once per verb"


def _body(exchange: Exchange) -> Iterator[_Found]:
    if not exchange.body.strip():
        yield ERROR, "answers 200 with an empty body, which cannot be decoded (EOF)"
        return
    content_type = exchange.headers.get("Content-Type", "")
    if content_type.partition(";")[0].strip().lower() != "application/json":
        yield NOTE, f'Content-Type is "{content_type}", should be "application/json"'
    try:
        value = first_value(exchange.body)
    except AnswerError as error:
        yield ERROR, f"the answer is not JSON: {error}"
        return
    if _has_more(exchange.body):
        yield WARNING, "more follows the JSON value; only the first one is read"
    try:
        yield from _READERS[exchange.verb](exchange, value)
    except AnswerError as error:
        yield ERROR, _explained(str(error), value)


def _has_more(body: bytes) -> bool:
    try:
        json.loads(body)
    except ValueError as error:
        return str(error).startswith("Extra data")
    return False


def _explained(error: str, value: Any) -> str:
    """Go's error message, with advice for known cases."""
    nodes = _member(value, "Nodes")
    if isinstance(nodes, list):
        return f'Nodes is a list; it must be a NodeList, an object: {{"items": [...]}}. ({error})'
    if isinstance(_member(value, "Items"), list) or "HostPriorityList" in error:
        return f"scores must be a list: [{{...Host..., ...Score...}}]. ({error})"
    if "int64" in error:
        return f"scores must be whole numbers. ({error})"
    for name in ("FailedNodes", "FailedAndUnresolvableNodes"):
        if f".{name}" in error:
            return f"{name} must map node names to reasons, both strings. ({error})"
    return f"cannot be decoded: {error}"


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        return None
    return next((item for key, item in value.items() if key.casefold() == name.casefold()), None)


# ---------------------------------------------------------------- spelling


def _spelling(value: Any, fields: Sequence[str]) -> Iterator[_Found]:
    """Findings about keys in another case, which only Go accepts, and about unknown keys."""
    if not isinstance(value, dict):
        return
    proper = {field.casefold(): field for field in fields}
    for key in value:
        field = proper.get(key.casefold())
        if field is None:
            yield NOTE, f'the key "{key}" is not read'
        elif field != key:
            text = f'the key "{key}" should be spelled "{field}"; schedulers take any case, other clients may not'
            yield NOTE, text


# ---------------------------------------------------------------- filter

_FILTER_FIELDS: Final = (
    "Nodes",
    "NodeNames",
    "FailedNodes",
    "FailedAndUnresolvableNodes",
    "Error",
)


def _filter(exchange: Exchange, value: Any) -> Iterator[_Found]:
    answer = wire.read_filter(exchange.body)
    yield from _spelling(value, _FILTER_FIELDS)
    if answer.error:
        text = "answers with an Error, which fails the scheduling attempt regardless of the rest of the answer"
        yield ERROR, f"{text}. It said: {answer.error}"
        return
    kept, complaint = _kept(exchange, answer)
    if complaint is not None:
        yield complaint
        return
    yield from _kept_names(exchange, kept)
    if exchange.whole:
        yield from _stripped(value)
    yield from _reasons(exchange, kept, answer)


def _kept(exchange: Exchange, answer: wire.FilterAnswer) -> tuple[list[str], _Found | None]:
    """The nodes that pass as a scheduler reads the answer, and findings about fields that it ignores."""
    reasons = answer.failed or answer.failed_and_unresolvable
    if exchange.whole:
        if answer.nodes is None and answer.node_names:
            text = "answers NodeNames, which are not read when whole nodes were sent (nodeCacheCapable: false)"
            return [], (ERROR, f"{text}: every node is rejected. Answer Nodes")
        if answer.nodes is None and not reasons:
            return [], (ERROR, "answers neither Nodes nor reasons: every node is rejected")
        return answer.nodes or [], None
    if answer.node_names is None:
        if answer.nodes is not None:
            text = "answers Nodes where names were sent; that is read, but NodeNames is shorter"
            return answer.nodes, (NOTE, text)
        if not reasons:
            text = "answers neither NodeNames nor reasons: every node is rejected"
            return [], (ERROR, text)
    return answer.node_names or [], None


def _kept_names(exchange: Exchange, kept: Sequence[str]) -> Iterator[_Found]:
    strangers = dict.fromkeys(name for name in kept if name not in set(exchange.names))
    if strangers and exchange.whole:
        text = f"lets nodes pass that were not sent: {_some(strangers)}; kube-scheduler believes it"
        yield WARNING, text
    elif strangers:
        text = f"NodeNames has names that were not sent: {_some(strangers)}; the whole answer is rejected"
        yield ERROR, text
    if twice := [name for name, count in Counter(kept).items() if count > 1]:
        yield WARNING, f"nodes come more than once: {_some(twice)}"


def _stripped(value: Any) -> Iterator[_Found]:
    items = _member(_member(value, "Nodes"), "items") or ()
    if any(set(item or ()) <= {"metadata"} for item in items):
        text = "nodes come back without spec and status; kube-scheduler passes them on to the next extender like that"
        yield NOTE, text


def _reasons(
    exchange: Exchange, kept: Sequence[str], answer: wire.FilterAnswer
) -> Iterator[_Found]:
    given = {**answer.failed, **answer.failed_and_unresolvable}
    if both := [name for name in kept if name in given]:
        yield WARNING, f"nodes pass and have a reason not to: {_some(both)}; they pass"
    if strangers := [name for name in given if name not in set(exchange.names)]:
        yield WARNING, f"gives reasons for nodes that were not sent: {_some(strangers)}"
    silent = [name for name in exchange.names if name not in given and name not in set(kept)]
    if silent:
        text = f"drops nodes without a reason: {_some(silent)}; users do not see why, and preemption is not tried there"
        yield WARNING, text
    if empty := [name for name, reason in given.items() if not reason.strip()]:
        yield WARNING, f"gives an empty reason for {_some(empty)}"


# ---------------------------------------------------------------- prioritize


def _prioritize(exchange: Exchange, value: Any) -> Iterator[_Found]:
    hosts, scores = wire.read_prioritize(exchange.body)
    for entry in (value or ())[:1]:
        yield from _spelling(entry, ("Host", "Score"))
    if not hosts:
        yield NOTE, "scores no node, which counts as 0 for all"
        return
    sent = set(exchange.names)
    if strangers := dict.fromkeys(host for host in hosts if host not in sent):
        yield WARNING, f"scores nodes that were not sent: {_some(strangers)}"
    if missing := [name for name in exchange.names if name not in set(hosts)]:
        yield WARNING, f"leaves nodes without a score: {_some(missing)}; they get 0"
    if twice := [host for host, count in Counter(hosts).items() if count > 1]:
        yield WARNING, f"scores nodes more than once: {_some(twice)}; the scores are added"
    beyond = sorted({score for score in scores if not 0 <= score <= HIGHEST_SCORE})
    if beyond:
        text = (
            f"gives scores outside 0 to {HIGHEST_SCORE}: {_some(beyond)}; nothing limits them, so they outweigh "
            "all plugins"
        )
        yield WARNING, text


# ---------------------------------------------------------------- preempt and bind


def _preempt(exchange: Exchange, value: Any) -> Iterator[_Found]:
    if _member(value, "NodeNameToVictims") and not _member(value, "NodeNameToMetaVictims"):
        text = "answers NodeNameToVictims, which is not read: victims are answered in NodeNameToMetaVictims"
        yield ERROR, text
        return
    yield from _spelling(value, ("NodeNameToMetaVictims",))
    answer = wire.read_preempt(exchange.body)
    if not answer and exchange.victims:
        yield NOTE, "agrees to no node, so nothing is preempted"
    for node, victims in answer.items():
        sent = exchange.victims.get(node)
        if sent is None:
            yield ERROR, f"names victims on a node that was not sent: {_some([node])}"
        elif strangers := [uid for uid in victims.uids if uid not in sent]:
            text = f"names victims on node {_some([node])} that are not there: {_some(strangers)}"
            yield ERROR, text
        elif sent and not victims.uids:
            text = f"names no victims on node {_some([node])}; kube-scheduler before 1.38 takes that for an error"
            yield WARNING, text


def _bind(exchange: Exchange, value: Any) -> Iterator[_Found]:
    yield from _spelling(value, ("Error",))
    error = wire.read_bind(exchange.body)
    if error:
        yield NOTE, f"rejected, as it should be for a pod that does not exist: {error}"
    else:
        yield ERROR, "says that it bound a pod that does not exist"


def _group(exchange: Exchange, value: Any) -> Iterator[_Found]:
    yield from _spelling(value, ("Answers", "Error"))
    if exchange.group is None:
        return
    answer = GroupReader(exchange.group).at_once(exchange.body)
    if answer.error:
        text = "answers with an Error, which fails the attempts of all pods of the group"
        yield ERROR, f"{text}. It said: {answer.error}"
    for verdict in answer.verdicts:
        pods = ", ".join(pod.name for pod in verdict.pods)
        if not verdict.kept:
            yield NOTE, f"accepts no node for {pods}"
        reasons = verdict.failed.keys() | verdict.failed_and_unresolvable.keys()
        if silent := [n for n in verdict.sent if n not in reasons and n not in verdict.kept]:
            yield WARNING, f"leaves out nodes without a reason for {pods}: {_some(silent)}"
        if beyond := sorted({s for s in verdict.scores.values() if not 0 <= s <= HIGHEST_SCORE}):
            yield WARNING, f"gives scores outside 0 to {HIGHEST_SCORE}: {_some(beyond)}"


def _release(exchange: Exchange, value: Any) -> Iterator[_Found]:
    yield from _spelling(value, ("Error",))
    error = wire.read_bind(exchange.body)
    if error:
        yield WARNING, f"rejected; a release of what is not reserved should succeed: {error}"


_READERS: Final[Mapping[Verb, Callable[[Exchange, Any], Iterator[_Found]]]] = {
    Verb.FILTER: _filter,
    Verb.PRIORITIZE: _prioritize,
    Verb.PREEMPT: _preempt,
    Verb.BIND: _bind,
    Verb.RELEASE: _release,
    Verb.GROUP: _group,
}


# ---------------------------------------------------------------- several exchanges


def compare_forms(
    configured: Sequence[CheckFinding],
    other: Sequence[CheckFinding],
    *,
    node_cache_capable: bool,
    verb: Verb,
) -> list[CheckFinding]:
    """Findings if an extender succeeds in one form and not in the other."""
    fails, other_fails = has_errors(configured), has_errors(other)
    setting = f"nodeCacheCapable is {str(node_cache_capable).lower()}"
    needs, gets = ("whole nodes", "names") if node_cache_capable else ("names", "whole nodes")
    if fails and not other_fails:
        opposite = str(not node_cache_capable).lower()
        text = f"needs {needs}, but {setting}, so it gets {gets}: set nodeCacheCapable: {opposite}"
        return [CheckFinding(ERROR, str(verb), text)]
    if not fails and not other_fails:
        return [CheckFinding(NOTE, str(verb), "understands both forms, names and whole nodes")]
    return []


def compare_sizes(small: Exchange, large: Exchange) -> list[CheckFinding]:
    """Findings if a large request fails and a small one succeeds."""
    if not small.answered or large.answered or large.status == 413:
        return []
    text = (
        f"the same about {_number(len(small.names), 'node')}, {small.sent} bytes, was answered: does it limit "
        "requests to "
        f"less than {large.sent} bytes, or want nodes that it knows (--nodes)?"
    )
    return [CheckFinding(NOTE, large.about, text)]


def compare_repeats(first: Exchange, second: Exchange) -> list[CheckFinding]:
    """Findings if the same request is answered differently the second time."""
    if not first.answered or wire_error(first):
        return []
    if not second.answered or wire_error(second):
        text = "fails when asked about the same pod again; a pod is asked about in every attempt, so it must not"
        return [CheckFinding(WARNING, second.about, text)]
    if _meaning(first) == _meaning(second):
        return []
    text = "answers differently when asked about the same pod again: it remembers pods, or it decides by chance"
    return [CheckFinding(NOTE, second.about, text)]


def weigh(exchange: Exchange, weight: int) -> list[CheckFinding]:
    """How far scores above HIGHEST_SCORE outweigh the default plugins; ``weight`` is the extender's."""
    if exchange.verb is not Verb.PRIORITIZE or not exchange.answered:
        return []
    try:
        _, scores = wire.read_prioritize(exchange.body)
    except AnswerError:
        return []
    if not scores or max(scores) <= HIGHEST_SCORE:
        return []
    between = (max(scores) - min(0, *scores)) * SCORE_SCALE * weight
    ratio = between / PLUGINS_AT_MOST
    text = (
        f"a score of {max(scores)} with weight {weight} adds {max(scores) * SCORE_SCALE * weight} to a node; all "
        "default "
        f"plugins together add at most {PLUGINS_AT_MOST}, so it counts up to {ratio:.1f} times as much as they do"
    )
    return [CheckFinding(NOTE, exchange.about, text)]


def keeps_one(exchange: Exchange) -> bool:
    """Whether an answer to filter leaves one of several nodes: then it may have been reserved."""
    if not exchange.answered or len(exchange.names) < _SEVERAL or wire_error(exchange):
        return False
    kept, _ = _kept(exchange, wire.read_filter(exchange.body))
    return len(kept) == 1


def compare_side_by_side(
    alone: Exchange, together: Sequence[Exchange], timeout: float
) -> list[CheckFinding]:
    """Findings about calls that were made at the same time, compared with one that was made ``alone``.

    ``timeout``: httpTimeout in seconds.
    """
    count = len(together)
    about = f"{alone.about}, {count} calls side by side"
    failed = [each for each in together if not each.answered]
    if failed:
        said = failed[0].failure or f"status {failed[0].status}: {excerpt(failed[0].body)}"
        text = f"{len(failed)} of them failed, one call alone did not. The first one said: {said}"
        return [CheckFinding(WARNING, about, text)]
    slowest = max(each.seconds for each in together)
    growth = slowest / max(alone.seconds, _SHORTEST)
    if slowest < _NOTICED or growth < _GROWTH:
        return []
    how = (
        "it answers one call after the other, as behind a lock"
        if count / 2 < growth < 2 * count
        else "it is limited"
    )
    text = (
        f"{how}: the last answer took {slowest:.1f} s, one alone {alone.seconds:.2f} s, so it takes about "
        f"{count / slowest:.0f} calls a second however many are in flight"
    )
    return [CheckFinding(WARNING if slowest > timeout / 2 else NOTE, about, text)]


def wire_error(exchange: Exchange) -> str:
    """The error in an answer to filter, or from reading it; else empty."""
    try:
        return wire.read_filter(exchange.body).error
    except AnswerError as error:
        return str(error)


def _meaning(exchange: Exchange) -> Any:
    try:
        return first_value(exchange.body)
    except AnswerError:
        return exchange.body
