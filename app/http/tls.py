"""Makes TLS contexts of clients from PEM in memory, although OpenSSL reads some of it only from files."""

import functools
import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from app.model.discreet import Discreet


class ClientCertificate(Discreet, frozen=True):
    """A certificate chain and its private key, PEM. The key stays out of ``repr``."""

    SECRETS: ClassVar = frozenset({"key"})

    chain: bytes
    key: bytes


def client_context(
    *,
    ca: bytes | None,
    verify: bool,
    check_hostname: bool = True,
    certificate: ClientCertificate | None,
) -> ssl.SSLContext:
    """A client's context; ``ca`` has the authorities to trust, None means those of the system.

    ``check_hostname`` may be False where ``ca`` is the server's own certificate. Raises ValueError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    try:
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif ca is not None:
            context.check_hostname = check_hostname
            # As in Go: any certificate in it is trusted, also one signed by another authority.
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(cadata=_ascii(ca))
        else:
            context.load_default_certs()  # takes some time, so only if needed
        if certificate is not None:
            with as_file(certificate.chain.rstrip() + b"\n" + certificate.key) as path:
                context.load_cert_chain(path, password=no_password)
    except ssl.SSLError as err:
        raise ValueError(f"the certificate, key or CA cannot be used: {err.reason or err}") from err
    return context


@functools.cache
def system_context() -> ssl.SSLContext:
    """A context that trusts the authorities of the system."""
    return client_context(ca=None, verify=True, certificate=None)


def _ascii(pem: bytes) -> str:
    """PEM without bytes that are not ASCII, which bundles have in comments."""
    return pem.decode("ascii", errors="ignore")


def no_password() -> str:
    """The password callback for OpenSSL, which would otherwise ask on the terminal. Raises ValueError."""
    raise ValueError("the key is encrypted; give one without a password")


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """A path with this content that only this process can read, in memory if possible."""
    try:
        number = os.memfd_create("certificate")
    except (AttributeError, OSError):
        import tempfile  # noqa: PLC0415 - Linux has memfd_create

        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
        return
    try:
        with open(number, "wb", closefd=False) as file:
            file.write(content)
        yield str(Path("/proc/self/fd", str(number)))
    finally:
        os.close(number)
