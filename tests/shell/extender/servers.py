"""Real servers on ephemeral ports that behave as badly as a test wants, and certificates for them."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import os
import socket
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Connection:
    """One accepted connection: reads requests, writes whatever the test wants."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    async def request(self):
        """The next request as (request line, headers by lower-case name, body), None at the end."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        line, *fields = head.decode().strip().split("\r\n")
        headers = {k.lower(): v for k, v in (f.split(": ", 1) for f in fields)}
        assert len(headers) == len(fields), f"a header came twice: {fields}"
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return line, headers, body

    def answer(self, body=b"{}", status="200 OK", *, length=None, **headers):
        """Writes an answer; ``length`` lies about its size."""
        size = len(body) if length is None else length
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {size}"]
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items()]
        self.writer.write("\r\n".join((*lines, "", "")).encode() + body)

    def hang_up(self):
        """Closes the connection in the kernel, at once, before any event loop can notice."""
        with socket.socket(fileno=os.dup(self.writer.get_extra_info("socket").fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)


class Server:
    """Runs ``serve(connection)`` per connection and remembers every request as (connection number, request)."""

    def __init__(self, serve, tls=None):
        self.serve, self.tls = serve, tls
        self.connections, self.requests, self.tasks = [], [], []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.server.wait_closed()

    async def _accept(self, reader, writer):
        self.tasks.append(asyncio.current_task())
        connection = Connection(reader, writer)
        number = len(self.connections)
        self.connections.append(connection)
        read = connection.request

        async def request():
            got = await read()
            if got:
                self.requests.append((number, got))
            return got

        connection.request = request
        with contextlib.suppress(asyncio.CancelledError):
            await self.serve(connection)
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()


async def polite(connection):
    """Answers every request with an empty object."""
    while await connection.request():
        connection.answer()


class Authority:
    """A certificate authority that lives for a test."""

    def __init__(self, name="test authority"):
        self.name, self.key = name, ec.generate_private_key(ec.SECP256R1())
        self.certificate = self._sign(name, self.key, is_authority=True)
        self.pem = self.certificate.public_bytes(serialization.Encoding.PEM)

    def issue(self, name, *hosts, password=None):
        """A (certificate, key) pair in PEM for these host names and addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(name, key, hosts)
        encryption = (
            serialization.BestAvailableEncryption(password)
            if password
            else serialization.NoEncryption()
        )
        return (
            certificate.public_bytes(serialization.Encoding.PEM),
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            ),
        )

    def _sign(self, name, key, hosts=(), *, is_authority=False):
        now = dt.datetime.now(dt.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self.name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(h) for h in hosts]), critical=False
            )
        return builder.sign(self.key, hashes.SHA256())


def _general_name(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def server_context(directory, pair, *, clients_from=None):
    """An SSL context for a server, which asks for client certificates of ``clients_from``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert, key = directory / "server.crt", directory / "server.key"
    cert.write_bytes(pair[0])
    key.write_bytes(pair[1])
    context.load_cert_chain(cert, key)
    if clients_from is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=clients_from.pem.decode())
    return context
