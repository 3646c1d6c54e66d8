"""What callers send, checked: a body, a number. What is no good is answered with 400 and the reason."""

import re
from typing import Final, NoReturn

from aiohttp import web

from app.serving.access import Refused, status_response

_WHOLE_NUMBER: Final = re.compile(r"[0-9]{1,9}")
#: Characters of a value that a message quotes.
_QUOTED: Final = 64


def bad_request(message: str) -> NoReturn:
    """Raises Refused with a status of 400."""
    raise Refused(status_response(400, "BadRequest", message))


async def body_of(request: web.Request) -> bytes:
    """The body of a request. Raises Refused when it is malformed, HTTPRequestEntityTooLarge when it is too large."""
    try:
        return await request.read()
    except web.RequestPayloadError:
        bad_request("the body of the request is malformed")


def whole_number(text: str, what: str) -> int:
    """A number from 0 to 999999999. Raises Refused with a message that says what ``what`` must be."""
    if _WHOLE_NUMBER.fullmatch(text) is None:
        shown = text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."
        bad_request(f"{what} must be a whole number from 0 to 999999999, not {shown!a}")
    return int(text)
