"""Which proxy is used: one table for the API server and for extenders.

The expected answers are those of Go's golang.org/x/net/http/httpproxy (v0.57.0) for the same environment, except
REFUSED for proxies: Go supports SOCKS, and goes directly or to a host that does not exist where it cannot parse a
proxy.
"""

import pytest

from app.extender.client import transport_for
from app.extender.config import ExtenderConfigError
from app.extender.tls import TLSSource
from app.http.proxy import Proxy, parse_proxy, proxy_for
from app.kube.errors import ConnectionSettingsError
from app.kube.kubeconfig import load_connection
from tests.shell.extender.fakes import config

HTTP = {"HTTP_PROXY": "http://p:3128"}
HTTPS = {"HTTPS_PROXY": "http://p:3128"}
BOTH = HTTP | HTTPS
PROXY = "http://p:3128"
DIRECT = None
REFUSED = "refused"


def way_of_the_api_server(url, environ):
    """Where requests to an API server at this URL go."""
    try:
        return load_connection(master=url, wall=lambda: 0.0, environ=environ).proxy
    except ConnectionSettingsError:
        return REFUSED


def way_of_an_extender(url, environ):
    """Where calls to an extender at this URL go."""
    settings = config(url_prefix=url)
    try:
        return transport_for(settings, TLSSource(settings), environ).proxy_for(url)
    except ExtenderConfigError:
        return REFUSED


VARIABLES = [
    ("http://e.test", {}, DIRECT),
    ("http://e.test", HTTP, PROXY),
    ("https://e.test", HTTP, DIRECT),
    ("https://e.test", HTTPS, PROXY),
    ("http://e.test", HTTPS, DIRECT),
    ("https://e.test", {"https_proxy": "http://p:3128"}, PROXY),
    ("http://e.test", {"http_proxy": "http://lower:1", **HTTP}, PROXY),
    ("http://e.test", {"http_proxy": "http://p:3128", "HTTP_PROXY": ""}, PROXY),
    ("http://e.test", {"ALL_PROXY": "http://p:3128"}, DIRECT),
    ("http://e.test", {**HTTP, "no_proxy": "e.test"}, DIRECT),
    ("http://e.test", {**HTTP, "no_proxy": "e.test", "NO_PROXY": "other"}, PROXY),
    ("http://e.test", {**HTTP, "REQUEST_METHOD": "GET"}, REFUSED),
    ("http://e.test", {**HTTP, "REQUEST_METHOD": "GET", "NO_PROXY": "e.test"}, REFUSED),
    ("http://e.test", {**HTTP, "REQUEST_METHOD": ""}, PROXY),
    ("https://e.test", {**HTTPS, "REQUEST_METHOD": "GET"}, PROXY),
    ("http://e.test", {"HTTP_PROXY": "p"}, "http://p"),
    ("http://e.test", {"HTTP_PROXY": "p:3128"}, PROXY),
    ("http://e.test", {"HTTP_PROXY": "10.0.0.1:3128"}, "http://10.0.0.1:3128"),
    ("http://e.test", {"HTTP_PROXY": "HTTP://P:3128/"}, "http://P:3128/"),
    ("http://e.test", {"HTTP_PROXY": "https://p:3128"}, "https://p:3128"),
    ("http://e.test", {"HTTP_PROXY": "socks5://p:1080"}, REFUSED),
    ("http://e.test", {"HTTP_PROXY": "socks5://p:1080", "NO_PROXY": "e.test"}, DIRECT),
    ("http://e.test", {"HTTP_PROXY": "ftp://p"}, REFUSED),
    ("http://e.test", {"HTTP_PROXY": "http://"}, REFUSED),
    ("http://e.test", {"HTTP_PROXY": "http://[::1"}, REFUSED),
    ("http://e.test", {"HTTP_PROXY": "http://p:port"}, REFUSED),
    ("http://e.test", {"HTTP_PROXY": "http://p:99999"}, REFUSED),
    ("http://e.test", {"HTTP_PROXY": " http://p:3128"}, REFUSED),
]

LOCAL = [
    ("localhost", DIRECT),
    ("localhost:8080", DIRECT),
    ("LOCALHOST", PROXY),
    ("localhost.", PROXY),
    ("sub.localhost", PROXY),
    ("127.0.0.1", DIRECT),
    ("127.3.4.5", DIRECT),
    ("127.1", PROXY),
    ("0.0.0.0", PROXY),
    ("[::1]:80", DIRECT),
    ("[0:0:0:0:0:0:0:1]", DIRECT),
    ("[::ffff:127.0.0.1]", DIRECT),
]

EXCEPTIONS = [
    ("e.test", "*", DIRECT),
    ("e.test", " * ", DIRECT),
    ("e.test", "other,*", DIRECT),
    ("e.test", "**", PROXY),
    ("e.test", "*test", PROXY),
    ("e.test", "*.test", DIRECT),
    ("test", "*.test", PROXY),
    ("e.test", "*.*", PROXY),
    ("e.test", ".test", DIRECT),
    ("e.test", ".e.test", PROXY),
    ("a.e.test", ".e.test", DIRECT),
    ("e.test", "test", DIRECT),
    ("note.test", "e.test", PROXY),
    ("e.test", ".", PROXY),
    ("e.test", "", PROXY),
    ("e.test", ", ,", PROXY),
    ("e.test", "\tE.TEST\n", DIRECT),
    ("E.TEST", "e.test", DIRECT),
    ("e.test", "other , e.test", DIRECT),
    ("e.test", "other e.test", PROXY),
    ("e.test", "other;e.test", PROXY),
    ("e.test", "http://e.test", PROXY),
    ("e.test", "http://e.test:80", PROXY),
    ("e.test", "e.test/", PROXY),
    ("e.test", "e.test.", PROXY),
    ("e.test.", "e.test", PROXY),
    ("e.test.", "e.test.", DIRECT),
    ("e.test", "e.test:80", DIRECT),
    ("e.test", "e.test:443", PROXY),
    ("e.test", "e.test:", DIRECT),
    ("e.test", "e.test:http", PROXY),
    ("e.test", ":80", PROXY),
    ("e.test:", "e.test:80", DIRECT),
    ("e.test:80", "e.test:080", PROXY),
    ("e.test:8080", "e.test:8080", DIRECT),
    ("e.test:8080", ".test:8080", DIRECT),
    ("e.test:8080", "*.test:80", PROXY),
    ("e.test", "[e.test]", PROXY),
    ("e.test", "[e.test]:80", DIRECT),
    ("10.96.3.4", "10.96.0.0/12", DIRECT),
    ("10.96.3.4:8443", "10.0.0.0/8", DIRECT),
    ("10.96.3.4", "10.96.3.4/8", DIRECT),
    ("10.96.3.4", "10.0.0.0/08", DIRECT),
    ("10.96.3.4", "10.96.0.0/33", PROXY),
    ("10.96.3.4", "10.0.0.0/255.0.0.0", PROXY),
    ("10.96.3.4", "10.0.0.0/8:80", PROXY),
    ("10.96.3.4", "0.0.0.0/0", DIRECT),
    ("10.96.3.4", "::/0", PROXY),
    ("10.96.3.4", "10.96.3.4", DIRECT),
    ("10.96.3.4:8443", "10.96.3.4", DIRECT),
    ("10.96.3.4:8443", "10.96.3.4:443", PROXY),
    ("10.96.3.4:8443", "10.96.3.4:8443", DIRECT),
    ("10.96.3.4", "10.96.3", PROXY),
    ("10.96.3.4", "96.3.4", PROXY),
    ("10.96.3.4", ".3.4", PROXY),
    ("10.96.3.4", "10.96.3.*", PROXY),
    ("10.96.3.4", "010.096.003.004", PROXY),
    ("10.96.3.4", "::ffff:10.96.3.4", DIRECT),
    ("10.96.3.4", "::ffff:10.0.0.0/104", DIRECT),
    ("[::ffff:10.96.3.4]", "10.0.0.0/8", DIRECT),
    ("[fd00::5]", "fd00::5", DIRECT),
    ("[fd00::5]", "FD00:0::5", DIRECT),
    ("[fd00::5]", "[fd00::5]", PROXY),
    ("[fd00::5]", "[fd00::5]:80", DIRECT),
    ("[fd00::5]:81", "[fd00::5]:80", PROXY),
    ("[fd00::5]", "fd00::/8", DIRECT),
    ("[fd00::5]", "[fd00::]/8", PROXY),
    ("[fe80::1%25eth0]", "fe80::1", DIRECT),
    ("[fe80::1%25eth0]", "fe80::/10", DIRECT),
    ("[fe80::1]", "fe80::1%eth0", PROXY),
    ("[fe80::1%25eth0]", "fe80::%eth0/10", PROXY),
    ("bücher.test", "xn--bcher-kva.test", DIRECT),
    ("xn--bcher-kva.test", "bücher.test", DIRECT),
    ("BÜCHER.test", "bücher.test:80", DIRECT),
    ("a.bücher.test", ".BÜCHER.test", DIRECT),
    ("e.test", "ü_x..test,e.test", DIRECT),
]

TABLE = [
    *VARIABLES,
    *((f"http://{host}", BOTH, way) for host, way in LOCAL),
    *(
        (f"http://{host}", {**BOTH, "NO_PROXY": no_proxy}, way)
        for host, no_proxy, way in EXCEPTIONS
    ),
    ("https://e.test", {**BOTH, "NO_PROXY": "e.test:443"}, DIRECT),
    ("https://e.test", {**BOTH, "NO_PROXY": "e.test:80"}, PROXY),
]


@pytest.mark.parametrize("way_of", [way_of_the_api_server, way_of_an_extender])
@pytest.mark.parametrize(("url", "environ", "expected"), TABLE)
def test_which_proxy(way_of, url, environ, expected):
    way = way_of(url, environ)
    assert (way.url if isinstance(way, Proxy) else way) == expected


def test_credentials_are_kept_apart():
    proxy = proxy_for("http://e.test", {"HTTP_PROXY": "user:p%40ss@p:3128"})
    assert proxy.url == "http://p:3128"
    assert proxy.headers == {"Proxy-Authorization": "Basic dXNlcjpwQHNz"}
    assert "dXNlcj" not in repr(proxy)
    assert parse_proxy("https://user@p").headers == {"Proxy-Authorization": "Basic dXNlcjo="}
    assert parse_proxy("https://p").headers == {}


@pytest.mark.parametrize(
    "proxy",
    ["socks5://user:secret@p", "http://user:secret@p:x", "http://user:secret", "http://:secret@"],
)
def test_a_refusal_does_not_show_the_password(proxy):
    with pytest.raises(ValueError, match="HTTP_PROXY: ") as caught:
        proxy_for("http://e.test", {"HTTP_PROXY": proxy})
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__
