"""Proxies from the environment; what Go's net/http answers for the same."""

import pytest

from app.http.proxy import proxy_for

HTTP = {"HTTP_PROXY": "http://p:3128"}
HTTPS = {"HTTPS_PROXY": "http://p:3128"}


@pytest.mark.parametrize(
    ("url", "environ", "proxied"),
    [
        ("http://ext.shop.svc:8080/f", {}, None),
        ("http://ext.shop.svc:8080/f", HTTP, "http://p:3128"),
        ("https://ext.shop.svc/f", HTTP, None),
        ("https://ext.shop.svc/f", HTTPS, "http://p:3128"),
        ("https://ext.shop.svc/f", {"https_proxy": "p:3128"}, "http://p:3128"),
        ("http://ext.shop.svc/f", {"http_proxy": "p:1", **HTTP}, "http://p:3128"),
        ("http://127.0.0.1:1/f", HTTP, None),
        ("http://127.3.4.5/f", HTTP, None),
        ("http://localhost:80/f", HTTP, None),
        ("http://[::1]:80/f", HTTP, None),
        ("http://localhost.:80/f", HTTP, "http://p:3128"),
    ],
)
def test_which_proxy(url, environ, proxied):
    assert proxy_for(url, environ) == proxied


@pytest.mark.parametrize(
    ("host", "no_proxy", "direct"),
    [
        ("ext.shop.svc", "*", True),
        ("ext.shop.svc", "shop.svc", True),
        ("ext.shop.svc", " SHOP.svc ", True),
        ("ext.shop.svc", "other, ext.shop.svc", True),
        ("ext.shop.svc", ".shop.svc", True),
        ("ext.shop.svc", "*.shop.svc", True),
        ("ext.shop.svc", ",,", False),
        ("ext.shop.svc", "shop.svc:443", False),
        ("ext.shop.svc:443", "shop.svc:443", True),
        ("shop.svc", "shop.svc", True),
        ("shop.svc", ".shop.svc", False),
        ("shop.svc", "*.shop.svc", False),
        ("notshop.svc", "shop.svc", False),
        ("10.96.3.4", "10.96.0.0/12", True),
        ("10.96.3.4", "10.96.0.0/33", False),
        ("10.96.3.4", "10.96.3.4", True),
        ("10.96.3.4:8443", "10.96.3.4:443", False),
        ("10.96.3.4:8443", "10.96.3.4", True),
        ("10.96.3.4", "10.96.3.4:80", True),
        ("[fd00::5]", "fd00::/8", True),
        ("[fd00::5]", "fd00::5", True),
        ("[fd00::5]", "[fd00::5]:80", True),
        ("[fd00::5]", "10.0.0.0/8", False),
    ],
)
def test_exceptions(host, no_proxy, direct):
    environ = {**HTTP, "NO_PROXY": no_proxy}
    assert (proxy_for(f"http://{host}/f", environ) is None) is direct


def test_small_letters_for_exceptions():
    assert proxy_for("http://ext/f", {**HTTP, "no_proxy": "ext"}) is None


def test_a_proxy_that_is_not_http():
    with pytest.raises(ValueError, match="HTTP_PROXY names a proxy that is neither"):
        proxy_for("http://ext/f", {"HTTP_PROXY": "socks5://user:secret@p:1"})
    assert proxy_for("http://ext/f", {"HTTP_PROXY": "socks5://p:1", "NO_PROXY": "ext"}) is None
