"""Error texts for failed exchanges as Go's HTTP client has them, because they become the pod's condition and event."""

import errno
import os
import ssl
from typing import Final

from app.extender.config import redacted
from app.extender.errors import CallOutcome, TransportError
from app.http.body import BadEncodingError
from app.http.connection import MalformedAnswerError
from app.http.errors import (
    ConnectError,
    ConnectionBrokenError,
    ConnectionFailedError,
    ServerDisconnectedError,
    TLSError,
    UnknownHostError,
)
from app.http.request import Progress
from app.model.gotext import quote
from app.runtime.shortages import shortage_in

_NAMED: Final = {errno.ECONNRESET: "read", errno.EPIPE: "write"}
_NOT_LEADING: Final = "not called: this process does not hold the leader lease"
_UNKNOWN_AUTHORITY: Final = "certificate signed by unknown authority"
#: Texts for certificate errors by OpenSSL's number; the others keep its text.
_CERTIFICATES: Final = {
    18: _UNKNOWN_AUTHORITY,
    19: _UNKNOWN_AUTHORITY,
    20: _UNKNOWN_AUTHORITY,
    21: _UNKNOWN_AUTHORITY,
    26: "certificate specifies an incompatible key usage",
}
#: Texts of TLS alerts whose name in OpenSSL differs.
_ALERTS: Final = {
    "certificate expired": "expired certificate",
    "certificate revoked": "revoked certificate",
    "certificate unknown": "unknown certificate",
    "protocol version": "protocol version not supported",
    "unknown ca": "unknown certificate authority",
}


def timed_out(progress: Progress) -> TransportError:
    """The exchange timed out."""
    reason = "context deadline exceeded"
    if progress.in_body:
        text = f"{reason} (Client.Timeout or context cancellation while reading body)"
    else:
        text = _post(progress.url, f"{reason} (Client.Timeout exceeded while awaiting headers)")
    return TransportError(CallOutcome.TIMEOUT, text, sent=progress.sent)


def not_leading(progress: Progress) -> TransportError:
    """This process may not call."""
    return TransportError(CallOutcome.CANCELLED, _NOT_LEADING, sent=progress.sent)


def too_large(limit: int) -> TransportError:
    """The answer is larger than the limit."""
    return TransportError(
        CallOutcome.BAD_ANSWER, f"the answer has more than {limit} bytes", sent=True
    )


def no_memory(places: int) -> TransportError:
    """A large answer could not be read in time because other ones were being read."""
    text = f"the answer is large, and there was no memory for it in time: {places} large answers are read at a time"
    return TransportError(CallOutcome.BAD_ANSWER, text, sent=True)


def misled(url: str, reason: str) -> TransportError:
    """A redirect that cannot be followed."""
    return TransportError(CallOutcome.BAD_ANSWER, _post(url, reason), sent=True)


def broken(err: Exception, progress: Progress) -> TransportError:
    """A connection that could not be made, or that broke; ``kept`` from an earlier call."""
    if isinstance(err, BadEncodingError):
        return TransportError(CallOutcome.BAD_ANSWER, "gzip: invalid header", sent=progress.sent)
    if progress.in_body:
        return TransportError(CallOutcome.BROKEN, "unexpected EOF", sent=progress.sent)
    outcome = CallOutcome.BROKEN if progress.sent else CallOutcome.UNREACHABLE
    if not progress.sent and shortage_in(err) is not None:
        outcome = CallOutcome.SHORTAGE
    if progress.kept and isinstance(err, ConnectionFailedError | OSError):
        outcome = CallOutcome.STALE
    return TransportError(outcome, _post(progress.url, _reason(err)), sent=progress.sent)


def _post(url: str, reason: str) -> str:
    return f"Post {quote(redacted(url))}: {reason}"


def _reason(err: Exception) -> str:
    match err:
        case UnknownHostError():
            return f"dial tcp: lookup {err.host}: no such host"
        case (
            TLSError(why=ssl.SSLError() as why)
            | ConnectionBrokenError(__cause__=ssl.SSLError() as why)
        ):
            return _tls_reason(why)
        case ConnectError() if not _os_reason(err.why):
            return "EOF"  # the server closed the connection during the TLS handshake
        case ConnectError():
            return f"dial tcp {_address(err)}: connect: {_os_reason(err.why)}"
        case ServerDisconnectedError():
            return "EOF"
        case MalformedAnswerError():
            return f"net/http: HTTP/1.x transport connection broken: malformed HTTP response: {err}"
        case OSError():
            return f"{_NAMED.get(err.errno or 0, 'connection')}: {_os_reason(err)}"
    return _line(str(err)) or type(err).__name__


def _tls_reason(err: ssl.SSLError) -> str:
    if isinstance(err, ssl.SSLCertVerificationError):
        reason = _CERTIFICATES.get(err.verify_code, err.verify_message)
        return f"tls: failed to verify certificate: x509: {reason}"
    _, is_alert, name = (err.reason or "").partition("_ALERT_")
    if is_alert:
        alert = name.replace("_", " ").lower()
        return f"remote error: tls: {_ALERTS.get(alert, alert)}"
    if err.reason == "WRONG_VERSION_NUMBER":
        return "tls: first record does not look like a TLS handshake"
    return f"tls: {err.strerror or err}"


def _address(err: ConnectError) -> str:
    return f"[{err.host}]:{err.port}" if ":" in err.host else f"{err.host}:{err.port}"


def _os_reason(err: OSError) -> str:
    """The system's error text as Go prints it."""
    return os.strerror(err.errno).lower() if err.errno else _line(str(err))


def _line(text: str) -> str:
    """The first line of a text that may quote a server."""
    return text.strip().partition("\n")[0][:200]
