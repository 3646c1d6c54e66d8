"""Parses parts of requests; invalid input is answered with 400 and the reason."""

import re
from typing import Final, NoReturn

from aiohttp import web

from app.serving.access import RequestRejected, status_response

_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,9}")
#: Characters of an invalid value that a message quotes.
_QUOTED: Final = 64


def bad_request(message: str) -> NoReturn:
    """Raises RequestRejected with a status of 400."""
    raise RequestRejected(status_response(400, "BadRequest", message))


async def body_of(request: web.Request) -> bytes:
    """The body of a request. Raises RequestRejected when it is malformed, HTTPRequestEntityTooLarge when it is too
    large.
    """
    try:
        return await request.read()
    except web.RequestPayloadError:
        bad_request("the body of the request is malformed")


def whole_number(text: str, what: str) -> int:
    """A number from 0 to 999999999. Raises RequestRejected with a message that says what ``what`` must be."""
    if _WHOLE_NUMBER.fullmatch(text) is None:
        shown = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."
        bad_request(f"{what} must be a whole number from 0 to 999999999, not {shown!a}")
    return int(text)
