"""Failures of exchanges over HTTP."""


class HTTPError(Exception):
    """An exchange has failed."""


class PayloadError(HTTPError):
    """The body of an answer is not complete, or cannot be used."""


class ProxyError(HTTPError):
    """The proxy has refused the tunnel to the server."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(status, message)
        self.status = status
        self.message = message

    def __str__(self) -> str:
        return f"proxy answered {self.status} {self.message[:100]}".rstrip()


class ConnectionFailedError(HTTPError):
    """There is no connection, or no longer."""


class ServerDisconnectedError(ConnectionFailedError):
    """The server has closed the connection."""

    def __init__(self, message: str = "Server disconnected") -> None:
        super().__init__(message)


class ConnectionBrokenError(ConnectionFailedError, OSError):
    """The system reports that the connection is broken."""


class ConnectError(ConnectionBrokenError):
    """A connection cannot be made."""

    def __init__(self, host: str, port: int, why: OSError) -> None:
        super().__init__(why.errno, why.strerror)
        self.host = host
        self.port = port
        self.why = why

    def __str__(self) -> str:
        return f"Cannot connect to host {self.host}:{self.port} [{self.strerror or self.why}]"


class UnknownHostError(ConnectError):
    """The name of the host cannot be looked up."""


class TLSError(ConnectError):
    """The TLS handshake has failed."""
