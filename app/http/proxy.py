"""Proxies from the environment, by the rules of Go's net/http that kube-scheduler follows (spec: service.md 2.5)."""

import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def proxy_for(url: str, environ: Mapping[str, str]) -> str | None:
    """The URL of the proxy for ``url``, None to go there directly.

    HTTP_PROXY, HTTPS_PROXY and NO_PROXY, or the same in small letters. Loopback addresses and ``localhost`` are never
    proxied. Entries of NO_PROXY are ``*``, addresses, CIDR blocks, and domains (with their subdomains; subdomains only
    with a leading dot or ``*.``), each but a block with an optional port. Raises ValueError for a proxy that cannot be used.
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    proxy = _variable(environ, f"{scheme}_proxy")
    if not proxy or _bypassed(parts, scheme, _variable(environ, "no_proxy")):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if urlsplit(proxy).scheme.lower() not in _DEFAULT_PORTS:
        name = f"{scheme}_proxy".upper()
        raise ValueError(
            f"{name} names a proxy that is neither http:// nor https://; exempt the host in NO_PROXY"
        )
    return proxy


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _bypassed(parts: SplitResult, scheme: str, no_proxy: str) -> bool:
    host = parts.hostname or ""
    port = parts.port or _DEFAULT_PORTS.get(scheme)
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = (entry.strip().lower() for entry in no_proxy.split(","))
    return any(_matches(entry, host, port, address) for entry in entries if entry)


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _matches(entry: str, host: str, port: int | None, address: _Address | None) -> bool:
    if entry == "*":
        return True
    if "/" in entry and (block := _block(entry)) is not None:
        return address is not None and address in block
    name, wanted_port = _split_port(entry)
    if wanted_port is not None and wanted_port != port:
        return False
    excepted = _address(name)
    if excepted is not None:
        return excepted == address
    return _is_domain_of(name.removeprefix("*"), host)


def _block(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _split_port(entry: str) -> tuple[str, int | None]:
    name, colon, port = entry.rpartition(":")
    if not colon or not port.isdecimal() or (":" in name and not name.endswith("]")):
        return entry.strip("[]"), None
    return name.strip("[]"), int(port)


def _is_domain_of(domain: str, host: str) -> bool:
    if domain.startswith("."):
        return host.endswith(domain)
    return host == domain or host.endswith(f".{domain}")
