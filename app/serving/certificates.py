"""The certificate that the endpoints have where none is given. Apart from TLS itself, because its library takes long to
import.
"""

import datetime as dt
import ipaddress
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID_DAYS: Final = 365


def self_signed(names: list[str], wall: float) -> bytes:
    """A self-signed certificate for these names, valid from ``wall`` (seconds since the epoch), and its key, PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = dt.datetime.fromtimestamp(wall, dt.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"localhost@{int(wall)}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), critical=False)
        .sign(key, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM) + key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def first_of(chain: bytes) -> str:
    """The first certificate of a chain that was read already, PEM."""
    leaf = x509.load_pem_x509_certificate(chain)
    return leaf.public_bytes(serialization.Encoding.PEM).decode()
