"""Serves ``POST /extenders/requeue``, which makes pods that extenders rejected active again.

The body is a JSON object. All fields are optional; a pod is woken if all given fields match::

    {"extender": "https://licences.tools.svc/scheduler",      its urlPrefix, as configured
     "pods": [{"namespace": "shop", "name": "web-0"}],
     "resource": "example.com/licence"}                       pods that ask for it

The answer is ``{"woken": 3}``. It requires the verb ``post`` on the non-resource URL ``/extenders/requeue``.
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
    """Which of the pods that extenders rejected to wake; all given fields must match."""

    #: Only pods that this extender rejected: its urlPrefix, as configured.
    extender: str = ""
    #: Only these pods.
    pods: tuple[PodName, ...] | None = None
    #: Only pods that request this resource.
    resource: str = ""


_DECODER: Final = msgspec.json.Decoder(WakeRequest)


class ExtenderPages:
    """The endpoint for extenders."""

    def __init__(
        self, wake: Callable[[WakeRequest], int], *, leader: Callable[[], str | None]
    ) -> None:
        """``wake`` makes pods active and returns how many; it raises ValueError for an unknown extender.

        ``leader``: None while this process leads, else the known leader, "" if there is none."""
        self._wake_pods: Final = wake
        self._leader: Final = leader

    def routes(self) -> list[web.RouteDef]:
        """The pages."""
        return [web.post(PATH, self._wake)]

    async def _wake(self, request: web.Request) -> web.Response:
        body = await body_of(request)
        leader = self._leader()
        if leader is not None:
            who = leader or "not known"
            text = f"this scheduler is on standby and has rejected no pods; the leader is {who}"
            return status_response(503, "ServiceUnavailable", text)
        try:
            woken = self._wake_pods(_DECODER.decode(body.strip() or b"{}"))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            bad_request(str(error))
        return web.Response(
            body=msgspec.json.encode({"woken": woken}), content_type="application/json"
        )
