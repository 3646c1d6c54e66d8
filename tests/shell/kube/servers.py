"""A server on loopback that answers byte by byte as a test wants, and certificates for it."""

import asyncio
import datetime as dt
import ipaddress
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass
class Seen:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    writer: asyncio.StreamWriter = field(repr=False)

    async def send(self, data: bytes) -> None:
        """Writes raw bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, status: int, body: Any = None, **headers: str) -> None:
        """A whole answer; underscores in header names stand for dashes."""
        payload = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(payload)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)

    async def begin_stream(self, status: int = 200) -> None:
        """The head of a chunked answer."""
        await self.send(b"HTTP/1.1 %d Whatever\r\nTransfer-Encoding: chunked\r\n\r\n" % status)

    async def chunk(self, data: bytes) -> None:
        """One chunk; an empty one is the end."""
        await self.send(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def hang_up(self) -> None:
        """Resets the connection."""
        self.writer.transport.abort()


Reply = Callable[[Seen], Awaitable[None]]


class Server:
    """What arrived at the server, and where it is."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.url = ""
        self.port = 0
        self.connections = 0

    async def serve(
        self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while not writer.is_closing():
                request = await self._read(reader, writer)
                self.seen.append(request)
                await reply(request)
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Seen:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in headers.items()}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        return Seen(method, target, headers, body, writer)


@asynccontextmanager
async def serving(reply: Reply, tls: ssl.SSLContext | None = None) -> AsyncIterator[Server]:
    """Serves on a free port of loopback."""
    server, tasks = Server(), set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await server.serve(reply, reader, writer)

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls, limit=2**22)
    server.port = listener.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.port}"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await listener.wait_closed()


# ---------------------------------------------------------------- certificates


@dataclass(frozen=True)
class Pem:
    """A certificate and its key."""

    certificate: bytes
    key: bytes

    def write(self, directory: Path, name: str) -> tuple[Path, Path]:
        """Both as files; others, not the same with new contents, where there are some by these names."""
        files = directory / f"{name}.crt", directory / f"{name}.key"
        for file, data in zip(files, (self.certificate, self.key), strict=True):
            draft = file.with_name(f"{file.name}.new")
            draft.write_bytes(data)
            draft.replace(file)
        return files


class Authority:
    """A certificate authority for one test."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")])
        self._certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.pem = self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name: str, *, hosts: tuple[str, ...] = (), client: bool = False) -> Pem:
        """A certificate for a server (with hosts) or a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = ExtendedKeyUsageOID.CLIENT_AUTH if client else ExtendedKeyUsageOID.SERVER_AUTH
        builder = self._builder(subject, key).add_extension(
            x509.ExtendedKeyUsage([usage]), critical=False
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pem(
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            ),
        )

    def server_tls(self, directory: Path, pem: Pem, *, ask: bool = False) -> ssl.SSLContext:
        """Settings of a server that shows ``pem``, and asks for a client certificate if told to."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pem.write(directory, "server"))
        if ask:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self.pem.decode())
        return context

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
        )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
