"""Records events about pods and leases, and writes them in the background.

``record`` is synchronous and cheap: it finds the series of the occurrence and puts that into a bounded queue. A few
workers send what has changed since a series was last sent. An event must not delay a binding: while there is something
more important to write the workers wait, one of them for some seconds, the others for longer unless very many events
wait. A full queue drops events and counts them. Warnings are dropped first: a failed attempt will be reported again,
but Preempted and Scheduled are sent only once.

    first occurrence     created
    second               sent again, as a series with its count
    later                counted; sent every 30 minutes, and once more when 6 minutes have passed without another
"""

import asyncio
import functools
import logging
import re
import uuid
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from app.kube.errors import (
    AlreadyExists,
    ConnectionFailed,
    KubeApiError,
    NotFound,
    NotLeading,
    ServerUnavailable,
)
from app.kube.event_series import EventKey, EventsApi, ObjectRef, Series, truncate_note
from app.kube.lookup import expect_object
from app.kube.transport import STRATEGIC_MERGE_PATCH, Guard, Transport
from app.model.budget import UNLIMITED, ByteBudget
from app.runtime.tasks import Limiter, Slots

logger = logging.getLogger(__name__)

NORMAL: Final = "Normal"
WARNING: Final = "Warning"

WORKERS: Final = 4
#: Attempts to send an event while the server cannot be reached, and the wait between, in seconds (plus up to a
#: quarter).
ATTEMPTS: Final = 12
RETRY: Final = 10.0
#: Seconds after which a series without another occurrence is closed, and after which a running one is sent again.
IDLE: Final = 360.0
REFRESH: Final = 1800.0
#: Seconds between two looks for such series.
SWEEP: Final = 60.0
#: Largest number of series; the oldest is closed early.
MAX_SERIES: Final = 12_500
#: How many of the oldest series are examined to close one that has nothing to send.
_MAX_EXAMINED: Final = 100
#: Largest number of series that wait to be sent, which are among those that are kept anyway; 2500 preemptors with three
#: victims each cause 12,500.
QUEUE_SIZE: Final = MAX_SERIES
#: Places in the queue for warnings.
WARNINGS: Final = QUEUE_SIZE // 2
#: Seconds for which the first worker lets an event wait while something else is to be written, and for which the others
#: do, so that only one of the concurrent requests is an event's; and seconds between two checks (docs/decisions/0007).
PATIENCE: Final = 5.0
LONG_PATIENCE: Final = 30.0
LOOK: Final = 0.05
#: Number of waiting events from which the others wait as briefly as the first, so that a shutdown has the time to send
#: them.
CROWD: Final = 2500

_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class EventStatistics(msgspec.Struct, frozen=True):
    """Figures of the recorder."""

    queued: int
    series: int
    sent: int
    #: Occurrences lost to a full queue.
    dropped: int
    #: Events not sent: rejected by the server, or the server was not reached in time.
    failed: int


class EventRecorder:
    """Records events; ``run`` sends them.

    ``api`` None: the server is asked which one it has. ``host`` is part of reportingInstance. ``may_write`` is asked
    before each sending (not for leader election, which reports the loss of the lease). ``budget``: the memory for
    series; without a limit if None.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        host: str,
        rng: np.random.Generator,
        api: EventsApi | None = None,
        may_write: Guard = lambda: True,
        budget: ByteBudget | None = None,
    ) -> None:
        self._transport: Final = transport
        self._host: Final = host
        self._rng: Final = rng
        self._api: EventsApi | None = api
        self._may_write: Final = may_write
        self._budget: Final = budget or ByteBudget(UNLIMITED)
        self._queue: Final[deque[Series]] = deque()
        #: As many as there are series in the queue: a worker takes one, then the series.
        self._turns: Final = Slots(0)
        #: Counts the series that are in the queue or being sent.
        self._unsent: Final = Limiter()
        self._series: Final[dict[EventKey, Series]] = {}
        self._last_stamp = 0
        self._sent = self._dropped = self._failed = 0
        self._busy: Callable[[], bool] = lambda: False
        self._hurried = False

    def defer_while(self, busy: Callable[[], bool]) -> None:
        """Lets events wait for some time while ``busy`` says that there is something more important to write."""
        self._busy = busy

    @functools.cached_property
    def _loop_time(self) -> Callable[[], float]:
        """The time of the event loop, which is looked up once: that takes a system call."""
        return asyncio.get_running_loop().time

    # ------------------------------------------------------------ recording

    def record(
        self,
        regarding: ObjectRef,
        *,
        type: str,  # noqa: A002 - the field's name
        reason: str,
        action: str,
        note: str,
        reporting_controller: str,
        now: float,
        related: ObjectRef | None = None,
    ) -> None:
        """Records one occurrence at ``now`` (seconds since the epoch). Never waits; drops the event if the queue is
        full."""
        key = EventKey(regarding, related, type, reason, action, reporting_controller)
        loop_time = self._loop_time()
        series = self._series.get(key)
        if series is None:
            series = Series(key, self._name(regarding.name, now), truncate_note(note), now)
            series.heard_at = series.told_at = loop_time
            if not self._take(series.size):
                self._dropped += 1
            elif self._put(series):
                self._remember(series)
            else:
                self._budget.give_back(series.size)
            return
        series.count += 1
        series.last = now
        series.heard_at = loop_time
        if series.count == 2:
            self._put(series)

    def _take(self, size: int) -> bool:
        """Takes memory from the budget. If there is too little, closes the oldest series that have nothing to send."""
        while not self._budget.take(size):
            oldest = islice(self._series.values(), _MAX_EXAMINED)
            idle = next((each for each in oldest if not (each.queued or each.news)), None)
            if idle is None:
                return False
            del self._series[idle.key]
            self._budget.give_back(idle.size)
        return True

    def _put(self, series: Series) -> bool:
        if series.queued:
            return True
        places = WARNINGS if series.key.type == WARNING else QUEUE_SIZE
        if len(self._queue) >= places:
            self._dropped += 1
            return False
        self._queue.append(series)
        self._turns.give_back()
        self._unsent.add(1)
        series.queued = True
        return True

    def _remember(self, series: Series) -> None:
        if len(self._series) >= MAX_SERIES:
            oldest = self._series.pop(next(iter(self._series)))
            if oldest.news:
                self._put(oldest)
            self._check_forgotten(oldest)
        self._series[series.key] = series

    def _check_forgotten(self, series: Series) -> None:
        """Gives the memory of a series back that is neither kept nor waits to be sent."""
        if not series.queued and self._series.get(series.key) is not series:
            self._budget.give_back(series.size)

    def _name(self, about: str, now: float) -> str:
        """``<object>.<nanoseconds, hexadecimal>``, unique; a UUID if that is not a valid name."""
        self._last_stamp = max(self._last_stamp + 1, int(now * 1e9))
        name = f"{about}.{self._last_stamp:x}"
        return name if len(name) <= 253 and _SUBDOMAIN.fullmatch(name) else str(uuid.uuid4())

    # ------------------------------------------------------------ sending

    async def run(self) -> None:
        """Sends recorded events until cancelled."""
        api = self._api or await self._discover()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._sweep_for_ever(), name="events: sweep")
            for number in range(WORKERS):
                patience = LONG_PATIENCE if number else PATIENCE
                group.create_task(self._work(api, patience), name=f"events: worker {number}")

    async def drain(self, seconds: float) -> bool:
        """Waits until all recorded events are sent; False if ``seconds`` were not enough. Needs ``run``."""
        for series in self._series.values():
            if series.news:
                self._put(series)
        self._hurried = True
        try:
            async with asyncio.timeout(seconds):
                await self._unsent.wait_until_idle()
        except TimeoutError:
            late = sum(series.queued for series in self._series.values())
            logger.warning("%d events were not sent in time", late)
            return False
        finally:
            self._hurried = False
        return True

    def statistics(self) -> EventStatistics:
        """Figures for metrics and endpoints."""
        return EventStatistics(
            len(self._queue), len(self._series), self._sent, self._dropped, self._failed
        )

    async def _discover(self) -> EventsApi:
        while True:
            try:
                await self._transport.request("GET", "/apis/events.k8s.io/v1")
            except NotFound:
                return "v1"
            except KubeApiError as err:
                logger.debug("The server's event API is not known yet: %s", err)
                await self._pause()
            else:
                return "events.k8s.io/v1"

    async def _pause(self) -> None:
        await asyncio.sleep(RETRY * (1.0 + self._rng.random() / 4))

    async def _work(self, api: EventsApi, patience: float) -> None:
        while True:
            if not self._turns.take():
                await self._turns.wait()
            series = self._queue.popleft()
            try:
                if self._busy():
                    await self._wait_for_others(series, patience)
                await self._tell(series, api)
            finally:
                self._unsent.add(-1)

    async def _wait_for_others(self, series: Series, patience: float) -> None:
        """Waits while there is something more important to write, until the event is this old (seconds)."""
        while self._busy() and not self._hurried:
            crowded = len(self._queue) > CROWD
            if self._loop_time() - series.heard_at >= (PATIENCE if crowded else patience):
                break
            await asyncio.sleep(LOOK)

    async def _tell(self, series: Series, api: EventsApi) -> None:
        again = False
        try:
            await self._send_patiently(series, api)
            self._sent += 1
            again = series.told_count == 1 and series.count > 1
        except (KubeApiError, NotLeading) as err:
            self._failed += 1
            logger.debug("Event %s is given up: %s", series.name, err)
        finally:
            series.queued = False
        if again:
            self._put(series)
        self._check_forgotten(series)

    async def _send_patiently(self, series: Series, api: EventsApi) -> None:
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._send(series, api)
            except (ConnectionFailed, ServerUnavailable):
                await self._pause()
        return await self._send(series, api)

    async def _send(self, series: Series, api: EventsApi) -> None:
        count, heard_at = series.count, series.heard_at
        if series.created:
            try:
                await self._patch(series, api)
            except NotFound:
                await self._create(series, api)
        else:
            await self._create(series, api)
        series.created = True
        series.told_count, series.told_at = count, heard_at

    async def _create(self, series: Series, api: EventsApi) -> None:
        body = series.body(api, self._host)
        try:
            answer = await self._transport.request(
                "POST", series.collection(api), body=body, guard=self._may_write
            )
            expect_object(answer)
        except AlreadyExists:
            logger.debug("Event %s exists: an answer was lost", series.name)
            if series.count > 1:
                await self._patch(series, api)

    async def _patch(self, series: Series, api: EventsApi) -> None:
        answer = await self._transport.request(
            "PATCH",
            series.path(api),
            body=series.patch(api),
            content_type=STRATEGIC_MERGE_PATCH,
            guard=self._may_write,
        )
        expect_object(answer)

    # ------------------------------------------------------------ housekeeping

    async def _sweep_for_ever(self) -> None:
        while True:
            await asyncio.sleep(SWEEP)
            self._sweep(asyncio.get_running_loop().time())

    def _sweep(self, now: float) -> None:
        """Closes series that have not occurred again, and sends those that still occur."""
        for key, series in list(self._series.items()):
            idle = now - series.heard_at >= IDLE
            if idle:
                del self._series[key]
            if series.news and (idle or now - series.told_at >= REFRESH):
                self._put(series)
            if idle:
                self._check_forgotten(series)
