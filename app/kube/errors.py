"""Exceptions for requests to the API server.

Failures of connections and HTTP statuses are translated once, in app.kube.client, and chained. There is a subclass only
if some code handles it. Text from the server is shown only from a Kubernetes ``Status``, and cut, because the answer of
a proxy does not belong in logs.
"""

# ruff: noqa: N818 - named after Kubernetes' reasons and what they mean to the caller, not "...Error"

from typing import Final

import msgspec

from app.wire.sanitize import decode

#: What msgspec may raise for foreign bytes; RecursionError if values are nested too deeply.
UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
#: Characters of a server's message that are kept.
MAX_MESSAGE: Final = 1024


class KubeError(Exception):
    """The base of all exceptions that app.kube raises."""


class ConnectionSettingsError(KubeError):
    """The settings for connecting to the API server are missing or unusable."""


class NotLeading(KubeError):
    """A write was not sent, because this process is not the leader by its own clock."""

    def __init__(self, method: str, path: str) -> None:
        super().__init__(f"{method} {path}: not sent, this process does not hold the leader lease")


class StatusCause(msgspec.Struct, frozen=True):
    """metav1.StatusCause."""

    reason: str = ""
    message: str = ""
    field: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """metav1.StatusDetails."""

    name: str = ""
    group: str = ""
    kind: str = ""
    uid: str = ""
    causes: tuple[StatusCause, ...] | None = None
    retry_after_seconds: int = 0


class _Status(msgspec.Struct, frozen=True):
    kind: str = ""
    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None
    code: int = 0


_STATUS: Final = msgspec.json.Decoder(_Status)
_MAX_INT32: Final = 2**31 - 1


class KubeApiError(KubeError):
    """The API server rejected a request, or could not be reached.

    ``status`` is the HTTP status (0: no answer), ``reason`` the Kubernetes reason (``AlreadyExists``), ``retry_after``
    the seconds that the server asks to wait, or None.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        details: StatusDetails | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.reason = reason
        self.details = details or StatusDetails()
        self.retry_after = retry_after


class Unauthorized(KubeApiError):
    """401: the credentials are missing, wrong or expired."""


class Forbidden(KubeApiError):
    """403: the credentials are valid but do not allow this."""


class NotFound(KubeApiError):
    """404: no such object, or no such kind."""

    @property
    def is_missing_object(self) -> bool:
        """Whether the API server says that there is no such object; a 404 without a reason is from a load balancer."""
        return self.reason == "NotFound"


class Conflict(KubeApiError):
    """409: the object is not in the state that the request assumes."""


class AlreadyExists(Conflict):
    """409 on creation: the name is taken."""


class Expired(KubeApiError):
    """410: the resourceVersion or the continue token is too old; list again."""


class TooManyRequests(KubeApiError):
    """429: not done; retry after ``retry_after``."""


class ServerUnavailable(KubeApiError):
    """5xx: the server failed; a write may have taken effect."""


class ConnectionFailed(KubeApiError):
    """No answer: refused, reset, timed out. ``sent``: whether the request may have reached the server."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent


#: Seconds after which a request without an answer can no longer take effect: an API server ends longer ones
#: (--request-timeout).
SETTLED: Final = 60.0

_REQUEST_TIMEOUT: Final = 408
_WEBHOOK_FAILED: Final = "Internal error occurred: failed calling webhook"


def may_take_effect(error: KubeError) -> bool:
    """Whether a write that failed with this error may have taken effect, or may still do so within SETTLED seconds.

    An error of a webhook occurs before anything is stored; another 5xx may be about etcd's answer.
    """
    match error:
        case ConnectionFailed(sent=sent):
            return sent
        case KubeApiError(status=status) if status >= 500:
            webhook = error.message.startswith(_WEBHOOK_FAILED)
            return not (webhook and error.reason == "InternalError")
        case KubeApiError(status=status):
            return 200 <= status < 300 or status == _REQUEST_TIMEOUT
    return False


_BY_STATUS: Final[dict[int, type[KubeApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    429: TooManyRequests,
}


def error_from_status(
    status: int,
    *,
    message: str,
    reason: str = "",
    details: StatusDetails | None = None,
    retry_after: float | None = None,
) -> KubeApiError:
    """The exception for an HTTP status, or for the code of an ERROR line in a watch."""
    kind = _BY_STATUS.get(status, ServerUnavailable if status >= 500 else KubeApiError)
    if reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(
        _cut(message), status=status, reason=reason, details=details, retry_after=retry_after
    )


def error_from_response(
    method: str, path: str, status: int, body: bytes, retry_after: str | None
) -> KubeApiError:
    """The exception for a rejected request; ``retry_after`` is the header's text."""
    answer = _decode_status(body)
    seconds = _seconds(retry_after)
    if answer is None:
        message = f"{method} {path}: the server answered {status} without details"
        return error_from_status(status, message=message, retry_after=seconds)
    details = answer.details
    if seconds is None and details is not None and details.retry_after_seconds > 0:
        seconds = float(min(details.retry_after_seconds, _MAX_INT32))
    return error_from_status(
        status, message=answer.message, reason=answer.reason, details=details, retry_after=seconds
    )


def _decode_status(body: bytes) -> _Status | None:
    try:
        status = decode(_STATUS, body)
    except UNREADABLE:
        return None
    return status if status.kind == "Status" and status.message else None


def _seconds(header: str | None) -> float | None:
    """Seconds of a Retry-After header; the date form, which no API server uses, is ignored."""
    if header is None or not (header.isascii() and header.isdecimal()):
        return None
    return float(header)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_MESSAGE else text[: MAX_MESSAGE - 4] + " ..."
