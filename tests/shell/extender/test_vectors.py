"""Recorded exchanges of kube-scheduler 1.36.2 with scripted extenders, replayed against the chain.

For each case the chain is asked what kube-scheduler was asking, hears what it heard, and must send the same and come to
the same: survivors, texts of errors, victims, who bound the pod. What plugins add is not part of this.
"""

import gzip
import json
from pathlib import Path

import pytest

from app.extender.chain import ExtenderChain
from app.extender.client import HTTPExtender
from app.extender.config import ExtenderConfig, ExtenderConfigError, ManagedResource, Verb
from app.extender.errors import CallOutcome, ExtenderError, TransportError
from app.extender.events import ErrorIgnored
from app.extender.failures import timed_out
from app.extender.transport import ExtenderResponse
from app.http.request import Progress
from app.model.status import SchedulingError
from app.wire.extender_v1 import ExtenderArgs, Victims
from app.wire.kube import NodeDecoder, PodDecoder
from tests.shell.extender.fakes import Seen

VECTORS = Path(__file__).parents[2] / "parity" / "vectors" / "wire"
VOLATILE = {
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "lastTransitionTime",
    "deletionTimestamp",
}
REFUSED = "dial tcp 127.0.0.1:9: connect: connection refused"
# Where we differ on purpose: the next call gets our whole nodes; null victims are an error.
STRIPPED, NULL_VICTIMS = "nocap-stripped-nodes", "null among the victims on node"


def normal(value):
    if isinstance(value, dict):
        return {k: normal(v) for k, v in value.items() if k not in VOLATILE}
    return [normal(v) for v in value] if isinstance(value, list) else value


def seconds(text):
    return float(text[:-2]) / 1000 if text.endswith("ms") else float(text[:-1])


def extender_config(entry):
    return ExtenderConfig(
        url_prefix=entry["urlPrefix"],
        filter_verb=entry.get("filterVerb", ""),
        prioritize_verb=entry.get("prioritizeVerb", ""),
        preempt_verb=entry.get("preemptVerb", ""),
        bind_verb=entry.get("bindVerb", ""),
        weight=entry.get("weight", 0),
        http_timeout=seconds(entry["httpTimeout"]),
        node_cache_capable=entry.get("nodeCacheCapable", False),
        ignorable=entry.get("ignorable", False),
        managed_resources=tuple(
            ManagedResource(r["name"], r.get("ignoredByScheduler", False))
            for r in entry.get("managedResources", ())
        ),
    )


class Replay:
    """Stands for all extenders of a case: gives each verb its recorded answer, once."""

    def __init__(self, exchanges, pod_name):
        self.recorded, self.sent = {}, {}
        for exchange in exchanges:
            body = json.loads(exchange["body"])
            subject = body.get("Pod", {})
            name = body.get("PodName") or subject["metadata"]["name"]
            at = exchange["extender"], exchange["verb"]
            if name == pod_name and "conditions" not in subject.get("status", {}):
                self.recorded.setdefault(at, (body, exchange))

    def transport(self, number):
        return Wire(self, number)

    def body(self, verb):
        return next((b for (_, v), (b, _) in self.recorded.items() if v == verb), None)


class Wire:
    def __init__(self, replay, number):
        self.replay, self.number = replay, number

    async def post(self, url, body, *, headers, timeout_seconds, large=None):
        at = self.number, url.rsplit("/", 1)[1]
        assert at not in self.replay.sent, "asked twice"
        self.replay.sent[at] = json.loads(bytes(body))
        if url.startswith("http://127.0.0.1:9/"):
            del self.replay.sent[at]
            raise TransportError(CallOutcome.UNREACHABLE, f'Post "{url}": {REFUSED}', sent=False)
        reply, path = self.replay.recorded[at][1]["reply"], self.replay.recorded[at][1]["path"]
        assert url.endswith(path)
        if reply["delay"] > timeout_seconds:
            raise timed_out(Progress(url, sent=True))
        return ExtenderResponse(reply["status"], {}, reply["body"].encode())

    async def close(self):
        pass


class Case:
    def __init__(self, record, outcome):
        self.outcome = outcome
        self.replay = Replay(record["exchanges"], outcome["pod"]["metadata"]["name"])
        pods, nodes = PodDecoder(keep_raw=True, keep_bound_raw=True), NodeDecoder(keep_raw=True)

        def decode(decoder, obj):
            return decoder.decode(json.dumps(obj).encode())

        self.pod = decode(pods, outcome["pod"])
        self.running = [decode(pods, o) for o in record["objects"]["Pod"]]
        self.nodes = {n.name: n.raw for n in (decode(nodes, o) for o in record["objects"]["Node"])}
        self.seen = Seen()
        extenders = [
            HTTPExtender(
                extender_config(entry),
                transport=self.replay.transport(i),
                sink=self.seen,
                environ={},
            )
            for i, entry in enumerate(record["configuration"]["extenders"])
        ]
        self.chain = ExtenderChain(extenders, self.seen)

    def pods_on(self, name):
        if name not in self.nodes:
            return None
        return {p.uid: p for p in self.running if p.node_name == name}

    def candidates(self):
        body = self.replay.body("filter")
        if body is None:
            return sorted(self.nodes)
        if body["NodeNames"] is not None:
            return body["NodeNames"]
        return [n["metadata"]["name"] for n in body["Nodes"]["items"]]

    def victims(self, body):
        sent = body["NodeNameToVictims"] or body["NodeNameToMetaVictims"]
        return {
            name: Victims(
                tuple(
                    self.pods_on(name)[p.get("UID") or p["metadata"]["uid"]] for p in entry["Pods"]
                ),
                entry["NumPDBViolations"],
            )
            for name, entry in sent.items()
        }

    async def attempt(self):
        """One scheduling attempt as far as extenders go; None, or the error that ended it."""
        names = self.candidates()
        result = await self.chain.filter(ExtenderArgs(self.pod, names, self.nodes.get))
        if result.error:
            return result.error
        self.check_reasons(result)
        if not result.known(names):
            return None
        if len(result.survivors) > 1:
            await self.chain.prioritize(result.args)
        return await self.bind(result.known(names))

    async def bind(self, names):
        node = (self.replay.body("bind") or {}).get("Node") or self.outcome["node"]
        assert node in names

        async def look_up(_lost):
            return None

        try:
            bound = await self.chain.bind(self.pod, node, look_up)
        except ExtenderError as err:
            return err
        failed = any(each.error.verb is Verb.BIND for each in self.seen.all(ErrorIgnored))
        assert bound is (self.replay.body("bind") is not None and not failed)
        return None

    def check_reasons(self, result):
        message = self.outcome["event"] or ""
        if result.survivors or "nodes are available" not in message:
            return
        reasons = [*result.failed.values(), *result.unresolvable.values()]
        for reason in reasons:
            assert f"{reasons.count(reason)} {reason}" in message


def cases():
    """(record, outcome) per pod, less those whose nodes were all turned down by plugins."""
    found = []
    for path in sorted(VECTORS.glob("*.json.gz")):
        record = json.loads(gzip.decompress(path.read_bytes()))
        for outcome in record["pods"]:
            name = outcome["pod"]["metadata"]["name"]
            concerns = (
                record["exchanges"] or outcome["node"] or outcome.get("reason") == "SchedulerError"
            )
            if record["configuration"].get("extenders") and (concerns or "exit_status" in record):
                found.append(pytest.param(record, outcome, id=f"{record['name']}-{name}"))
    return found


@pytest.mark.parametrize(("record", "outcome"), cases())
async def test_case(record, outcome):
    if record["name"] == "two-binders":
        with pytest.raises(ExtenderConfigError, match="only one extender can bind"):
            Case(record, outcome)
        return
    case = Case(record, outcome)
    expected = {at: body for at, (body, _) in case.replay.recorded.items()}
    preempting = case.replay.body("preempt")
    if case.replay.body("filter") or not preempting:
        error = await case.attempt()
        fatal = outcome.get("reason") == "SchedulerError"
        assert (error and str(error)) == (outcome["message"] if fatal else None)
    if preempting:
        await check_preemption(case, preempting)
        expected.pop((0, "bind"), None)  # of the next attempt
    if record["name"] == STRIPPED:
        del expected[0, "prioritize"], case.replay.sent[0, "prioritize"]
    assert normal(case.replay.sent) == normal(expected)


async def check_preemption(case, body):
    message = case.outcome.get("message") or case.outcome["event"]
    _, _, told = (message or "").partition("preemption: ")
    left, error = {}, None
    try:
        left = await case.chain.preempt(case.pod, case.victims(body), case.pods_on)
    except SchedulingError as err:
        error = str(err)
    if message is None:
        assert error is None or NULL_VICTIMS in error
    elif target := case.outcome["nominated"] or case.outcome["node"]:
        assert target in left
    else:
        assert (error or "no candidate node for preemption") == told
        assert not left
