"""Stand-ins for what lies around the extender client: a scripted transport, and a sink that keeps events."""

import asyncio
import json

from app.extender.client import HTTPExtender
from app.extender.config import ExtenderConfig
from app.extender.errors import CallOutcome, TransportError
from app.extender.events import ignore
from app.extender.transport import ExtenderResponse
from app.model.objects import Container, PodSpec, ResourceRequirements
from app.model.pod import make_pod
from app.wire.extender_v1 import ExtenderArgs

URL = "http://ext.test"


class FakeTransport:
    """Answers every POST with what ``reply(path, body)`` gives: JSON, an ExtenderResponse, an exception, or a
    coroutine.
    """

    def __init__(self, reply):
        self.reply = reply
        self.requests = []
        self.headers = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.closed = False

    async def post(self, url, body, *, headers, timeout_seconds, large=None):
        path, sent = url.rsplit("/", 1)[1], json.loads(bytes(body))
        self.requests.append((path, sent))
        self.headers.append(dict(headers))
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            async with asyncio.timeout(timeout_seconds):
                answer = self.reply(path, sent)
                if asyncio.iscoroutine(answer):
                    answer = await answer
        except TimeoutError:
            raise TransportError(CallOutcome.TIMEOUT, "timed out", sent=True) from None
        finally:
            self.in_flight -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, ExtenderResponse) else ok(answer)

    async def close(self):
        self.closed = True


def ok(answer, **headers):
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return ExtenderResponse(200, headers, body)


class Seen(list):
    """A sink that keeps every event."""

    def __call__(self, event):
        self.append(event)

    def all(self, kind):
        return [event for event in self if isinstance(event, kind)]


def config(**fields):
    verbs = {f"{verb}_verb": verb for verb in ("filter", "prioritize", "preempt", "bind")}
    return ExtenderConfig(
        **{"url_prefix": URL, "weight": 1, "node_cache_capable": True, **verbs, **fields}
    )


def extender(reply=None, *, sink=ignore, labels_of=lambda _namespace: None, **fields):
    """An extender whose transport is ``.fake``."""
    fake = FakeTransport(reply or (lambda path, body: {}))
    made = HTTPExtender(
        config(**fields), transport=fake, sink=sink, environ={}, labels_of=labels_of
    )
    made.fake = fake
    return made


def pod(name="p", *, requests=None, init_requests=None, limits=None, uid=None):
    def containers(requests, limits=None):
        return (Container(name="c", resources=ResourceRequirements(requests, limits)),)

    spec = PodSpec(
        containers=containers(requests, limits),
        init_containers=init_requests and containers(init_requests),
    )
    raw = json.dumps({"metadata": {"name": name, "namespace": "ns"}}).encode()
    return make_pod(spec, name=name, namespace="ns", uid=uid or f"uid-{name}", raw=raw)


def node_json(name):
    return json.dumps({"metadata": {"name": name}}).encode()


def about(*names, who=None):
    """The question about these nodes."""
    return ExtenderArgs(who or pod(), list(names), node_json)


def keeps(*names, **more):
    """A filter that keeps these names."""
    return lambda path, body: {"NodeNames": list(names), **more}
