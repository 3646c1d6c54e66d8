"""``POST /extenders/requeue``: an extender, or anyone with the right, wakes the pods that extenders rejected.

The body is a JSON object; every field may be left out, and every one that is given must hold of a pod::

    {"extender": "https://licences.tools.svc/scheduler",      its urlPrefix, as configured
     "pods": [{"namespace": "shop", "name": "web-0"}],
     "resource": "example.com/licence"}                       pods that ask for it

The answer is ``{"woken": 3}``. The right to it is the verb ``post`` on the non-resource URL ``/extenders/requeue``.
"""

from collections.abc import Callable
from typing import Final

import msgspec
from aiohttp import web

from app.serving.access import status_response
from app.serving.requests import bad_request, body_of

PATH: Final = "/extenders/requeue"


class PodName(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Names a pod."""

    namespace: str
    name: str


class WakeRequest(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which of the pods that extenders rejected to wake; every condition that is given must hold."""

    #: Only those that this extender rejected: its urlPrefix, as configured.
    extender: str = ""
    #: Only these.
    pods: tuple[PodName, ...] | None = None
    #: Only those that ask for this resource.
    resource: str = ""


_DECODER: Final = msgspec.json.Decoder(WakeRequest)


class ExtenderPages:
    """What extenders may ask of the scheduler."""

    def __init__(
        self, wake: Callable[[WakeRequest], int], *, leader: Callable[[], str | None]
    ) -> None:
        """``wake`` makes pods active and returns how many; it raises ValueError for an unknown extender.

        ``leader``: None while this process leads, else who does, as far as is known; "" for nobody."""
        self._wake_pods: Final = wake
        self._leader: Final = leader

    def routes(self) -> list[web.RouteDef]:
        """The pages."""
        return [web.post(PATH, self._wake)]

    async def _wake(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        leader = self._leader()
        if leader is not None:
            who = leader or "nobody"
            text = f"this scheduler is on standby and has rejected no pods; the leader is {who}"
            return status_response(503, "ServiceUnavailable", text)
        try:
            woken = self._wake_pods(_DECODER.decode(body.strip() or b"{}"))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            bad_request(str(error))
        return web.Response(
            body=msgspec.json.encode({"woken": woken}), content_type="application/json"
        )
