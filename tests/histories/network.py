"""Between the processes and the API server: requests and watches take time here, and fail.

The product's own KubeClient runs above this; what is replaced is what it makes connections with (app.http.pool.Pool)
and what it opens streams with. So its guards, its time limits, its repetitions and its reading of errors are part of
each history, but no socket is.
"""

import asyncio
import errno
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self
from urllib.parse import unquote

from app.http.connection import Answer as HTTPAnswer
from app.http.errors import (
    ConnectError,
    ConnectionBrokenError,
    PayloadError,
    ServerDisconnectedError,
)
from app.http.request import Route
from app.kube.client import CONNECT_SECONDS, KubeClient
from tests.histories import apiserver
from tests.histories.apiserver import Answer, ApiServer, Entry, Watch, status_answer
from tests.histories.faults import AT_REST, CONNECTS, LINE, NONSENSE, WRITES, Faults
from tests.histories.simulation import ProcessLoop, Simulation

if TYPE_CHECKING:
    from tests.histories.extenders import Extender
    from tests.histories.replica import Replica

#: Seconds for which connections are kept at rest.
KEEPALIVE = 30.0
HTML = NONSENSE["a page of HTML for an answer"]
_TEXTS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "forbidden: RBAC: not yet known"),
    404: ("NotFound", "the server could not find the requested resource"),
    409: (
        "Conflict",
        "Operation cannot be fulfilled: please apply your changes to the latest version",
    ),
    410: ("Expired", "too old resource version"),
    422: ("Invalid", "admission webhook denied the request"),
    429: ("TooManyRequests", "too many requests, please try again later"),
    500: ("InternalError", "etcdserver: leader changed"),
    503: ("ServiceUnavailable", "apiserver is shutting down"),
    504: ("Timeout", "request did not complete within the allotted timeout"),
}


class Request:
    """One request as it was sent, and what became of it."""

    def __init__(self, sender: "Replica", method: str, target: str, body: bytes) -> None:
        self.sender = sender
        self.method = method
        self.path, self.params, self.kind = _taken_apart(method, target)
        self.body = body
        #: Who carries it out.
        self.server: ApiServer | Extender = sender.network.server
        #: What the sender's own clock showed when it was sent.
        self.sent_at = 0.0
        #: Since when the sender waits no longer: it has an answer, or has given up.
        self.settled_at = math.inf
        #: For how long after that the sender reckons with its taking effect all the same, seconds.
        self.patience = 60.0
        #: Whether it has reached the server before.
        self.arrived = False
        #: Whether an extender has refused it for a lock: a late copy is refused too, because the sender has been told.
        self.refused = False
        #: The uid of the pod that a status patch is meant for.
        self.intended_uid = ""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def settled(self) -> bool:
        """Whether the sender waits no longer."""
        return self.settled_at < math.inf


@functools.lru_cache(4096)
def _taken_apart(method: str, target: str) -> tuple[str, Mapping[str, str], str]:
    """Path, parameters and kind of a request."""
    path, _, query = target.partition("?")
    pairs = [pair.partition("=") for pair in query.split("&")]
    params = {name: unquote(value) if "%" in value else value for name, _, value in pairs}
    return path, MappingProxyType(params), _kind_of(method, path, params)


def _kind_of(method: str, target: str, params: Mapping[str, str]) -> str:
    """The kind of a request, as in faults."""
    if target.startswith("/extender/"):
        return f"extender {target.rpartition('/')[2]}"
    path = apiserver.parse(target)
    if method == "GET":
        return _kind_of_reading(path, params)
    if path.resource[1] == "events":
        return "lease event" if path.namespace == "kube-system" else "event"
    if path.resource == apiserver.LEASES:
        return "create lease" if method == "POST" else "update lease"
    if path.resource in {apiserver.POD_GROUPS, apiserver.NEWER_POD_GROUPS}:
        return "patch status"
    if path.resource != apiserver.PODS:
        return "patch volume"
    if path.subresource == "binding":
        return "bind"
    return "delete pod" if method == "DELETE" else "patch status"


def _kind_of_reading(path: apiserver.Path, params: Mapping[str, str]) -> str:
    if not path.resource[1]:
        return "discovery"
    if "watch" in params:
        return "watch"
    if not path.name:
        return "lookup" if "metadata.name" in params.get("fieldSelector", "") else "list"
    if path.resource == apiserver.LEASES:
        return "get lease"
    return "lookup" if path.resource == apiserver.PODS else "get claim"


class Tripwire(NamedTuple):
    """What happens at the next request of a kind: as it is sent, or as the server has carried it out."""

    kind: str
    when_done: bool
    action: Callable[[], None]


class Listener:
    """Who is connected to: the API server, or all extenders. Nobody listens until ``down_until``."""

    def __init__(self) -> None:
        self.down_until = -math.inf
        #: How often that began: no connection outlives it.
        self.crashes = 0


class Network:
    """Everything between processes and server."""

    def __init__(self, simulation: Simulation, server: ApiServer, faults: Faults) -> None:
        self.simulation = simulation
        self.server = server
        self.faults = faults
        self.rng = faults.rng
        self.api, self.webhooks = Listener(), Listener()
        #: Every request is refused with this status until then.
        self.refusing_until, self.refusal = -math.inf, ""
        #: The lease cannot be written until then; how the next attempt fails.
        self.stuck_until, self.stuck_fault = -math.inf, ""
        #: Writes fail until then, some of them done.
        self.failing_writes_until = -math.inf
        self.tripwires: list[Tripwire] = []
        #: When the last fault must have ended.
        self.quiet_at = math.inf
        #: The webhooks by host.
        self.extenders: dict[str, Extender] = {}
        #: Every request and every stream under way.
        self.open: dict[Exchange | Stream, None] = {}

    def crash(self, seconds: float) -> None:
        """The server is gone for so long: connections break, and what it has not done yet it never will."""
        self._crash(self.api, seconds)

    def crash_extenders(self, seconds: float) -> None:
        """All extenders are gone for so long, and forget what they keep in memory."""
        self._crash(self.webhooks, seconds)
        for extender in self.extenders.values():
            extender.restart()

    def _crash(self, listener: Listener, seconds: float) -> None:
        listener.down_until = self.simulation.now + seconds
        listener.crashes += 1
        for each in list(self.open):
            if self.listener_of(each.request) is listener:
                each.break_off()

    def listener_of(self, request: Request) -> Listener:
        """Who gets a request."""
        return self.api if request.server is self.server else self.webhooks

    def latency(self) -> float:
        """Seconds, one way."""
        return 0.0002 + 0.003 * self.rng.random()

    def pause(self, longest: float, least: float = 0.1) -> float:
        """Some seconds, short ones as often as long ones; never beyond the time of faults."""
        seconds = least * (longest / least) ** self.rng.random()
        return min(seconds, max(0.0, self.quiet_at - self.simulation.now))

    def fault(self, request: Request) -> str:
        """What goes wrong with a request that is sent now; empty for nothing."""
        now = self.simulation.now
        if now < request.sender.cut_off_until:
            fault = "no answer, not done"
        elif now < self.refusing_until and request.server is self.server:
            fault = self.refusal
        elif now < self.stuck_until and request.kind.endswith(" lease"):
            fault, self.stuck_fault = self.stuck_fault, "no answer, not done"
        elif now < self.failing_writes_until and request.kind in WRITES:
            fault = self.rng.choice(("500", "504", "500, done", "504, done", "no answer, not done"))
        else:
            fault = self.faults.strike(request.kind)
        if fault:
            self.faults.counts[request.kind, fault] += 1
        return fault

    def trip(self, kind: str, when_done: bool) -> None:
        """A request of a kind has come to this point."""
        for tripwire in self.tripwires:
            if tripwire.kind == kind and tripwire.when_done == when_done:
                self.tripwires.remove(tripwire)
                self.simulation.after(0.0, tripwire.action)
                return

    def made_up(self, fault: str) -> Answer:
        """The answer that a fault puts in the place of the server's."""
        if fault in NONSENSE:
            return Answer(200, NONSENSE[fault])
        status = int(fault[:3])
        if "proxy" in fault:
            return Answer(status, HTML)
        headers = {}
        if status == 429:
            headers = {"Retry-After": self.rng.choice(("0", "1", "3", "8"))}
        return status_answer(status, *_TEXTS[status], headers)


class SimulatedClient(KubeClient):
    """A KubeClient over the simulated network, for the process whose loop makes it."""

    async def __aenter__(self) -> Self:
        await self._credentials.load()
        purposes = {"events": CONNECTS[1], "leader-election": CONNECTS[2]}
        purpose = purposes.get(self._agent.rpartition(" ")[2], CONNECTS[0])
        self._pool = Wire(asyncio.get_running_loop().replica, purpose)
        return self

    async def aclose(self) -> None:
        self._pool = None

    async def _open(self, target: str, lines: bytes, read_timeout: float) -> "Stream":
        wire = self._opened()
        return await Stream(wire, Request(wire.replica, "GET", target, b""), read_timeout).opened()


class Wire:
    """One client's connections: a Pool (app.http.pool), whose streams are apart."""

    def __init__(self, replica: "Replica", purpose: str) -> None:
        self.replica = replica
        self.network: Network = replica.network
        self._purpose = purpose
        self._listener = self.network.webhooks if purpose == CONNECTS[3] else self.network.api
        self._connect_seconds = math.inf if purpose == CONNECTS[3] else CONNECT_SECONDS
        #: Since when connections are at rest.
        self._kept: list[float] = []
        self._crashes = 0
        self.now = asyncio.get_running_loop().time

    async def take(
        self,
        route: Route,
        deadline: float,
    ) -> "Exchange":
        return self.kept(route, deadline) or await self.dialled(route, deadline)

    async def dialled(self, route: Route, deadline: float) -> "Exchange":
        async with asyncio.timeout_at(deadline):
            await self.connect()
        return Exchange(self, deadline, kept=False)

    def kept(self, route: Route, deadline: float) -> "Exchange | None":
        if self._crashes != self._listener.crashes:
            self._crashes = self._listener.crashes
            self._kept.clear()
        oldest = self.network.simulation.now - KEEPALIVE
        kept = bool(self._kept) and self._kept.pop() >= oldest and not self.replica.killed
        if kept and self.network.faults.strike(AT_REST):
            kept = False
            self.network.faults.counts[AT_REST, "closed"] += 1
        if not kept:
            self._kept.clear()
            return None
        return Exchange(self, deadline, kept)

    async def connect(self) -> None:
        network = self.network
        seconds, fault = network.latency(), ""
        is_down = network.simulation.now < self._listener.down_until
        if is_down or self.replica.killed:
            fault = "no connection"
        elif network.simulation.now < self.replica.cut_off_until:
            seconds = math.inf
        else:
            fault = network.faults.strike(self._purpose)
        network.trip(self._purpose, False)
        if fault:
            network.faults.counts[self._purpose, fault] += 1
            self.replica.tell(f"{self._purpose}: {fault}")
        if fault == "slow connection":
            seconds = network.pause(12.0)
        if not self.replica.killed:
            await asyncio.sleep(min(seconds, self._connect_seconds))
        if seconds > (self._connect_seconds):
            raise TimeoutError
        if fault == "no connection":
            raise ConnectError("apiserver", 80, OSError(errno.ECONNREFUSED, "refused"))

    def give_back(self, route: Route, exchange: "Exchange") -> None:
        self._kept.append(self.network.simulation.now)

    def drop(self, exchange: "Exchange") -> None:
        exchange.give_up()

    async def close(self) -> None:
        self._kept.clear()


class Exchange:
    """One request and its answer, over one connection (app.http.connection)."""

    def __init__(self, wire: Wire, deadline: float, kept: bool) -> None:
        self.kept = kept
        self._wire = wire
        self._network = wire.network
        self._simulation = wire.network.simulation
        self._deadline = deadline
        self._answer: asyncio.Future[HTTPAnswer] | None = None
        #: What is left to be read of the body, and how it ends.
        self._body, self._body_error = b"", None
        self.request: Request | None = None
        #: Seconds that the answer takes, whatever fails.
        self._slow = 0.0
        #: Seconds for which the server lets the request wait.
        self._queued = 0.0

    async def drain(self) -> None:
        pass

    # ------------------------------------------------------------ what the client does

    def write(self, pieces: Sequence[bytes]) -> None:
        """Sends the request, all of which is in ``pieces``."""
        head, _, body = b"".join(pieces).partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        method, target, _ = first.split(" ")
        self._answer = self._wire.replica.loop.create_future()
        self.request = request = Request(self._wire.replica, method, target, body)
        if target.startswith("/extender/"):
            [host] = [line[6:] for line in lines if line.startswith("Host: ")]
            request.server = extender = self._network.extenders[host]
            self._slow = extender.delay()
            self._queued = extender.queue(request.path, self._simulation.now)
        request.sender.sends(request)
        if self._queued:
            request.sender.watcher.waits(request, self._queued)
        self._network.open[self] = None
        fault = self._network.fault(request)
        request.sender.tell(f"{request}: {fault}" if fault else str(request))
        self._meet(request, fault)
        self._network.trip(request.kind, False)

    async def answer(self) -> HTTPAnswer:
        assert self._answer is not None
        return await self._answer

    def at_eof(self) -> bool:
        return not self._body and self._body_error is None

    def take_whole(self, limit: int) -> bytes | None:
        if not self._body or self._body_error is not None or len(self._body) > limit:
            return None
        body, self._body = self._body, b""
        return body

    async def readany(self) -> bytes:
        if not self._body and self._body_error is not None:
            raise self._body_error
        body, self._body = self._body, b""
        return body

    def close(self) -> None:
        pass

    def give_up(self) -> None:
        """The client does not wait any longer."""
        self._network.open.pop(self, None)
        if self.request is not None:
            self.request.settled_at = min(self.request.settled_at, self._simulation.now)

    # ------------------------------------------------------------ what becomes of it

    def _meet(self, request: Request, fault: str) -> None:
        """Lets the request go its way, or what is left of it."""
        network, there = self._network, self._network.latency() + self._queued
        match fault:
            case "" | "half an answer" | "answer breaks off":
                self._later(there, self._arrive, fault)
            case "slow request" | "slow answer":
                slow = network.pause(40.0)
                way = (slow, 0.0) if fault == "slow request" else (there, slow)
                self._later(way[0], self._arrive, "", way[1])
                self._time_out()
            case "reset before":
                self._later(there, self.break_off)
            case "reset after":
                self._later(there, self._arrive, fault)
            case "no answer, not done":
                self._time_out()
            case "no answer, done":
                self._later(there, self._do, request)
                self._time_out()
            case "reset, done later":
                self._later(there, self.break_off)
                self._later(there + network.pause(30.0, least=1.0), self._do, request)
            case "done twice":
                self._later(there, self._arrive)
                self._later(there + network.pause(6.0), self._do, request)
            case "done twice, second answer":
                self._later(there, self._do, request)
                self._later(there + network.pause(3.0), self._arrive)
            case _:
                if "done" in fault:
                    self._later(there, self._do, request)
                self._later(there + 0.001, self._resolve, network.made_up(fault))

    def _later(self, seconds: float, action: Callable[..., object], *args: object) -> None:
        self._simulation.after(seconds, action, *args)

    def _do(self, request: Request) -> Answer:
        """The request reaches the server, whoever waits for it."""
        if self._is_gone(request):
            return Answer(503, b"")
        return request.server.handle(request)

    def _is_gone(self, request: Request) -> bool:
        """Whether there is no server at the moment."""
        return self._simulation.now < self._network.listener_of(request).down_until

    def _arrive(self, fault: str = "", slow: float = 0.0) -> None:
        """The request reaches the server, and its answer goes back."""
        request = self.request
        assert request is not None
        if request.settled and (self._is_gone(request) or self._network.rng.random() < 0.5):
            return  # nobody waits for it: the server has noticed, or is another one
        answer = request.server.handle(request)
        request.sender.tell(f"{request} answered {answer.status}")
        self._network.trip(request.kind, True)
        if fault == "reset after":
            self._later(self._network.latency(), self.break_off)
        elif fault == "answer breaks off":
            self._later(self._network.latency(), self._resolve, answer, False)
        else:
            if fault and answer.status < 300:
                answer = answer._replace(body=answer.body[: len(answer.body) // 2])
            self._later(self._network.latency() + slow + self._slow, self._resolve, answer)

    def _resolve(self, answer: Answer, whole: bool = True) -> None:
        """The answer is back."""
        if self._network.open.pop(self, self) is self:
            return
        request = self.request
        assert request is not None
        request.settled_at = self._simulation.now
        request.sender.receives(request, answer)
        loop = self._wire.replica.loop
        self._body = answer.body
        if not whole:
            self._body_error = PayloadError("the body is not complete")
        lines = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        result = HTTPAnswer(answer.status, lines)
        loop.call_from_world(self._set, result, None)

    def break_off(self) -> None:
        """The connection is reset."""
        self._fail(ConnectionBrokenError(errno.ECONNRESET, "Connection reset by peer"))

    def _time_out(self) -> None:
        self._simulation.at(self._deadline, self._fail, TimeoutError())

    def _fail(self, error: Exception) -> None:
        if self._network.open.pop(self, self) is self:
            return
        assert self.request is not None
        self.request.settled_at = self._simulation.now
        self._wire.replica.loop.call_from_world(self._set, None, error)

    def _set(self, result: HTTPAnswer | None, error: Exception | None) -> None:
        assert self._answer is not None
        if self._answer.done():
            return
        if error is not None:
            self._answer.set_exception(error)
        else:
            self._answer.set_result(result)


class Stream:
    """One watch (app.kube.client.StreamedResponse)."""

    def __init__(self, wire: Wire, request: Request, read_timeout: float) -> None:
        self._wire = wire
        self._network = wire.network
        self._simulation = wire.network.simulation
        self.request = request
        self._read_timeout = read_timeout
        self._loop: ProcessLoop = wire.replica.loop
        self._waiter: asyncio.Future[None] | None = None
        self._watch: Watch | None = None
        self._answer: Answer | None = None
        #: What has come in and was not read yet; whose changes are told with each piece.
        self._pieces: list[tuple[bytes, Entry | None]] = []
        #: What came while the process was cut off.
        self._held: list[tuple[bytes, Entry | None]] = []
        self._end: Exception | None = None
        self._ended = False
        #: Lines come in order: none before this time.
        self._free_at = self._heard_at = 0.0
        #: Whether a line was spoilt: nobody needs to believe those that follow.
        self._spoilt = False

    # ------------------------------------------------------------ what the client does

    async def opened(self) -> "Stream":
        await self._wire.connect()
        request, network = self.request, self._network
        request.sender.sends(request)
        network.open[self] = None
        fault = network.fault(request)
        request.sender.tell(f"watch {request.path}: {fault}" if fault else f"watch {request.path}")
        self._meet(request, fault)
        network.trip(request.kind, False)
        try:
            while self._answer is None:
                await self._wait()
        except BaseException:
            self.close()
            raise
        return self

    @property
    def status(self) -> int:
        assert self._answer is not None
        return self._answer.status

    @property
    def retry_after(self) -> str | None:
        assert self._answer is not None
        return self._answer.headers.get("Retry-After")

    def at_eof(self) -> bool:
        return self._ended and not self._pieces

    async def readany(self) -> bytes:
        """What has come in; empty at the end."""
        while not self._pieces:
            if self._ended:
                if self._end is not None:
                    raise self._end
                return b""
            await self._wait()
        pieces, self._pieces = self._pieces, []
        told = self._wire.replica.told
        for _, entry in pieces:
            if entry is not None:
                told.line(self.request, entry)
        return b"".join([piece for piece, _ in pieces])

    async def _wait(self) -> None:
        if self._ended and self._answer is None:
            raise self._end or ServerDisconnectedError
        self._waiter = self._loop.create_future()
        await self._waiter

    def close(self) -> None:
        self._network.open.pop(self, None)
        if self._watch is not None:
            self._watch.close()

    give_up = close

    # ------------------------------------------------------------ what becomes of it

    def _meet(self, request: Request, fault: str) -> None:
        after, there = self._simulation.after, self._network.latency()
        match fault:
            case "":
                after(there, self._arrive)
            case "slow request" | "slow answer":
                after(self._network.pause(40.0), self._arrive)
            case "no answer, not done" | "no answer, done":
                pass
            case "half an answer" | "a page of HTML for an answer":
                after(there, self._hear_answer, Answer(200, b""))
                after(there, self._come, HTML if "HTML" in fault else b'{"type":"ADDED","obj', None)
                after(there + 0.01, self._finish, None)
            case "reset before" | "reset after" | "answer breaks off":
                after(there, self.break_off)
            case _:
                after(there, self._hear_answer, self._network.made_up(fault))

    def _arrive(self) -> None:
        """The request reaches the server."""
        if self not in self._network.open:
            return
        self._free_at = self._simulation.now
        opened = self._network.server.watch(self.request, self._line)
        if isinstance(opened, Answer):
            self._simulation.after(self._network.latency(), self._hear_answer, opened)
            return
        self._watch = opened
        self._hear_answer(Answer(200, b""))
        self._heard_at = self._simulation.now
        life = int(self.request.params.get("timeoutSeconds", "60"))
        self._simulation.after(life, self._queue, b"", None, True)
        self._simulation.after(self._network.rng.uniform(3.0, 60.0), self._bookmark)
        if self._read_timeout:
            self._simulation.after(self._read_timeout, self._look_for_silence)

    def _hear_answer(self, answer: Answer) -> None:
        self._answer = answer
        if answer.status < 300:
            self._wire.replica.told.follows(self.request)
        else:
            self._pieces, self._ended = [(answer.body, None)], True
        self._loop.call_from_world(self._wake)

    def _line(self, line: bytes, entry: Entry) -> None:
        """The server has a line for this watch."""
        fault = self._network.faults.strike(LINE)
        if not fault:
            self._queue(line, entry)
            return
        network, rng = self._network, self._network.rng
        network.faults.counts[LINE, fault] += 1
        name = entry.stored.manifest["metadata"]["name"]
        self._wire.replica.tell(f"watch {self.request.path}: {entry.type} {name}: {fault}")
        cut = rng.randrange(1, len(line) - 1)
        match fault:
            case "cut":
                self._queue(line, entry)
                self._queue(b"", None, True, broken=True)
            case "cut in a line":
                self._queue(line[:cut], None, True, broken=True)
            case "ended":
                self._queue(line, entry, True)
            case "garbage line":
                self._spoil(b"\x00\xff{]garbage\n")
            case "HTML line":
                self._spoil(HTML)
            case "half a line":
                self._spoil(line[:cut] + b"\n")
            case "silence":
                self._hold_up(network.pause(100.0))
                self._queue(line, entry)
            case "slow line":
                self._hold_up(network.pause(8.0))
                self._queue(line, entry)
            case "line in pieces":
                self._queue(line[:cut], None)
                self._hold_up(network.pause(3.0))
                self._queue(line[cut:], entry)
            case "line twice":
                self._queue(line, entry)
                self._queue(line, entry)
            case _:
                status = int(fault[-3:])
                body = status_answer(status, *_TEXTS[status]).body
                self._queue(b'{"type":"ERROR","object":%b}\n' % body, None, True)

    def _hold_up(self, seconds: float) -> None:
        """Lets nothing through for so long from now on, however many such faults there are."""
        self._free_at = max(self._free_at, self._simulation.now + seconds)

    def _spoil(self, line: bytes) -> None:
        """A line that nobody can read comes instead of the true one, and the stream goes on."""
        self._queue(line, None)
        self._spoilt = True

    def _queue(
        self, piece: bytes, entry: Entry | None, last: bool = False, broken: bool = False
    ) -> None:
        """Sends a piece on its way, behind those before it."""
        self._free_at = max(self._free_at, self._simulation.now + self._network.latency())
        self._simulation.at(self._free_at, self._come, piece, None if self._spoilt else entry)
        if last:
            error = PayloadError("Response payload is not completed")
            self._simulation.at(self._free_at, self._finish, error if broken else None)

    def _bookmark(self) -> None:
        if self._watch is not None and self in self._network.open:
            meta = {"metadata": {"resourceVersion": str(self._network.server.version)}}
            self._queue(b'{"type":"BOOKMARK","object":%b}\n' % apiserver.encode(meta), None)

    def _come(self, piece: bytes, entry: Entry | None) -> None:
        """A piece is there."""
        if self._ended or self not in self._network.open:
            return
        if self._held or self._simulation.now < self._wire.replica.cut_off_until:
            self._held.append((piece, entry))
            if len(self._held) == 1:
                self._simulation.at(self._wire.replica.cut_off_until, self._let_through)
            return
        self._heard_at = self._simulation.now
        if piece:
            self._pieces.append((piece, entry))
            self._loop.call_from_world(self._wake)

    def _let_through(self) -> None:
        """What was held while the process was cut off comes in its order, once no other cut holds it."""
        if self._simulation.now < self._wire.replica.cut_off_until:
            self._simulation.at(self._wire.replica.cut_off_until, self._let_through)
            return
        held, self._held = self._held, []
        for piece, entry in held:
            self._come(piece, entry)

    def _look_for_silence(self) -> None:
        if self not in self._network.open:
            return
        until = self._heard_at + self._read_timeout
        if self._simulation.now >= until:
            self._finish(TimeoutError())
        else:
            self._simulation.at(until, self._look_for_silence)

    def break_off(self) -> None:
        """The connection is reset."""
        self._finish(ConnectionBrokenError(errno.ECONNRESET, "Connection reset by peer"))

    def _finish(self, error: Exception | None) -> None:
        if not self._ended and self in self._network.open:
            self._ended, self._end = True, error
            self.close()
            self._loop.call_from_world(self._wake)

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
