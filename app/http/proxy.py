"""Finds the proxy of a URL in the environment, by the rules of Go's ``golang.org/x/net/http/httpproxy``.

HTTP_PROXY is for http URLs, HTTPS_PROXY for https URLs, NO_PROXY lists the exceptions. Each may be in lower case; upper
case takes precedence. A value without a scheme is an http proxy. ``localhost`` and loopback addresses are never
proxied. NO_PROXY is separated by commas, and an entry is one of

    *                             no proxy at all
    10.0.0.0/8  fd00::/8          a network
    10.0.0.1  10.0.0.1:443        an address, on one port or all; IPv6 needs brackets with a port and allows none
    without example.com  example.com:443  a domain and its subdomains, on one port or all
    .example.com  *.example.com   its subdomains only

There is one difference: Go ignores a proxy URL that it cannot parse, and supports SOCKS; here both are errors.
"""

import base64
import ipaddress
import re
from collections.abc import Mapping
from typing import ClassVar, Final
from urllib.parse import unquote, urlsplit

from app.model.discreet import Discreet

_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}
_SCHEME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
#: As Go's net.SplitHostPort: brackets are for addresses with colons.
_HOST_AND_PORT: Final = re.compile(r"(?:\[([^\[\]]*)\]|([^:\[\]]*)):([^:\[\]]*)")

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxy(Discreet, frozen=True):
    """An HTTP proxy. Its credentials are separate from its URL, so that no message contains them."""

    SECRETS: ClassVar = frozenset({"authorization"})

    #: Without user and password.
    url: str
    #: The Proxy-Authorization header, empty to send none.
    authorization: str = ""

    @property
    def secure(self) -> bool:
        """Whether connections to the proxy itself use TLS."""
        return self.url.startswith("https:")

    @property
    def headers(self) -> dict[str, str]:
        """The headers for the proxy itself: of CONNECT, or of each request that is not tunnelled."""
        return {"Proxy-Authorization": self.authorization} if self.authorization else {}


def parse_proxy(text: str) -> Proxy:
    """A proxy by its URL. Raises ValueError with a text that does not repeat the URL."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("not a URL") from None
    if parts.scheme not in _DEFAULT_PORTS:
        raise ValueError("only http and https proxies are supported")
    if not parts.hostname or port == 0 or re.search(r"\s", text):
        raise ValueError("not a URL with a host")
    location = parts.netloc.rpartition("@")[2]
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode("ascii")
    return Proxy(parts._replace(netloc=location).geturl(), authorization)


def proxy_for(url: str, environ: Mapping[str, str]) -> Proxy | None:
    """The proxy for a URL, None to connect directly. Raises ValueError for a proxy that cannot be used."""
    scheme = urlsplit(url).scheme
    if scheme not in _DEFAULT_PORTS:
        return None
    name = f"{scheme}_proxy".upper()
    proxy = _variable(environ, name)
    if not proxy:
        return None
    if scheme == "http" and environ.get("REQUEST_METHOD"):
        raise ValueError(
            "HTTP_PROXY is refused because REQUEST_METHOD is set: "
            "in a CGI program the client of the web server may have chosen it"
        )
    if _bypassed(url, _variable(environ, "NO_PROXY")):
        return None
    try:
        return parse_proxy(proxy if _SCHEME.match(proxy) else f"http://{proxy}")
    except ValueError as err:
        raise ValueError(f"{name}: {err}; correct it, or exempt the host in NO_PROXY") from None


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name) or environ.get(name.lower()) or ""


def _bypassed(url: str, no_proxy: str) -> bool:
    """Whether the host of a URL is local or in NO_PROXY."""
    host, port = _host_and_port(url)
    address = _address(host.partition("%")[0])
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    entries = [entry for part in no_proxy.split(",") if (entry := part.strip().lower())]
    return "*" in entries or any(_matches(entry, host.lower(), port, address) for entry in entries)


def _host_and_port(url: str) -> tuple[str, str]:
    """The host of a URL in ASCII, without brackets, and its port, by default that of the scheme."""
    parts = urlsplit(url)
    host, colon, port = parts.netloc.rpartition("@")[2].rpartition(":")
    if not colon or "]" in port:
        host, port = host + colon + port, ""
    host = unquote(host.removeprefix("[").removesuffix("]"))
    return _ascii(host), port or _DEFAULT_PORTS[parts.scheme]


def _matches(entry: str, host: str, port: str, address: _Address | None) -> bool:
    """Whether an entry of NO_PROXY, in lower case, matches a host; ``address`` if the host is one."""
    network = _network(entry)
    if network is not None:
        return address is not None and address in network
    split = _HOST_AND_PORT.fullmatch(entry)
    name, wanted_port = (split[1] or split[2] or "", split[3]) if split else (entry, "")
    if not name or wanted_port not in {"", port}:
        return False
    if address is not None:
        return _address(name) == address
    name = name[1:] if name.startswith("*.") else name
    if name.startswith("."):
        return host.endswith(f".{_ascii(name[1:])}")
    name = _ascii(name)
    return host == name or host.endswith(f".{name}")


def _address(text: str) -> _Address | None:
    """The address of a text, None for others; an IPv4-mapped IPv6 address is the IPv4 address."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _network(entry: str) -> _Network | None:
    """A network in CIDR notation; IPv4-mapped ones as in ``_address``."""
    _, slash, bits = entry.partition("/")
    if not slash or "%" in entry or not (bits.isascii() and bits.isdecimal()):
        return None
    try:
        network = ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= 96:
        return ipaddress.IPv4Network((mapped, network.prefixlen - 96))
    return network


def _ascii(host: str) -> str:
    """A host name in punycode, as it is looked up."""
    if host.isascii():
        return host
    from yarl import URL  # noqa: PLC0415 - few names are not ASCII

    try:
        return URL.build(scheme="http", host=host).raw_host or host
    except ValueError:
        return host
