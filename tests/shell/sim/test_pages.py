"""Web pages cannot use the server: neither another site's requests nor a name that leads here by DNS rebinding."""

import aiohttp
import pytest

from app.sim import ClusterOptions
from tests.shell.sim.client import CONFIG_MAPS, Client

_OBJECT = b'{"metadata": {"name": "from-a-page"}}'


@pytest.fixture
def options() -> ClusterOptions:
    return ClusterOptions(debug=True, hosts=("api.example.org",))


@pytest.mark.parametrize("path", ["/version", CONFIG_MAPS, "/debug/cluster"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example:8080"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "localhost.evil.example"}, 403),
        ({"Host": "x@evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ({"Origin": "http://localhost:9"}, 403),
        ({"Host": "localhost:8080"}, 200),
        ({"Host": "LOCALHOST."}, 200),
        ({"Host": "[::1]:8080"}, 200),
        ({"Host": "172.17.0.2:8080"}, 200),
        ({"Host": "apiserver:8080"}, 200),
        ({"Host": "host.docker.internal"}, 200),
        ({"Host": "apiserver.test.svc:80"}, 200),
        ({"Host": "API.example.org:8443"}, 200),
        ({"Host": "localhost:80", "Origin": "http://localhost:80"}, 200),
        ({"Origin": "http://127.0.0.1:4466", "Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200),
        ({}, 200),
    ],
)
async def test_who_is_answered(client: Client, path, headers, status) -> None:
    async with client.session.get(client.url + path, headers=headers) as answer:
        assert answer.status == status
        if status == 403:
            body = await answer.json(content_type=None)
            assert (body["kind"], body["reason"]) == ("Status", "Forbidden")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Host": "evil.example"},
    ],
)
async def test_nothing_is_written_for_a_page(client: Client, headers) -> None:
    """``fetch(url, {method: "POST", mode: "no-cors", body: new Blob([...])})`` sends no content type, and needs no
    leave.
    """
    post = client.session.post(
        client.url + CONFIG_MAPS, data=_OBJECT, headers=headers, skip_auto_headers=["Content-Type"]
    )
    async with post as answer:
        assert answer.status == 403
    assert await client.names(CONFIG_MAPS) == []


async def test_other_clients_need_no_content_type(client: Client) -> None:
    post = client.session.post(
        client.url + CONFIG_MAPS, data=_OBJECT, skip_auto_headers=["Content-Type"]
    )
    async with post as answer:
        assert answer.status == 201


@pytest.mark.parametrize(
    "content_type",
    ["application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain"],
)
async def test_forms_are_not_read(client: Client, content_type) -> None:
    headers = {aiohttp.hdrs.CONTENT_TYPE: content_type}
    async with client.session.post(
        client.url + CONFIG_MAPS, data=_OBJECT, headers=headers
    ) as answer:
        assert answer.status == 415
