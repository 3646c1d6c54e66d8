"""A reader has no way to write, whatever its user tries."""

import inspect

import pytest

from app.kube import read_only
from app.kube.client import KubeClient
from app.kube.read_only import ReadOnlyClient
from app.kube.transport import Reader, Response

READING = {"get", "stream"}


class Server:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked = []

    async def get(self, path, *, params=None, timeout=None):
        self.asked.append(("GET", path, params, timeout))
        return Response(200, b"{}")

    def stream(self, path, *, params, read_timeout):
        self.asked.append(("stream", path, params, read_timeout))
        return "a stream"


def public(owner: object) -> set[str]:
    return {name for name, _ in inspect.getmembers(owner, callable) if not name.startswith("_")}


def reader() -> ReadOnlyClient:
    """Of a client that cannot be used."""
    return ReadOnlyClient(KubeClient.__new__(KubeClient))


def test_a_reader_has_reading_methods_only():
    assert public(reader()) == public(Reader) == READING


def test_no_argument_takes_a_method_or_a_body():
    for owner in (reader(), Reader):
        for name in READING:
            assert (
                not {"method", "body"} & inspect.signature(getattr(owner, name)).parameters.keys()
            )


def test_nothing_else_in_the_module_takes_a_request():
    made = {
        name: thing
        for name, thing in vars(read_only).items()
        if getattr(thing, "__module__", "") == read_only.__name__
    }
    assert set(made) == {"ReadOnlyClient", "read_only"}
    source = inspect.getsource(read_only)
    for word in ("POST", "PUT", "PATCH", "DELETE", ".request("):
        assert word not in source


def test_what_it_keeps_reads_only():
    """It keeps two functions, each of which is one of the client's own reading ones."""
    kept = vars(reader())
    assert set(kept) == READING
    assert all(each.__func__ is getattr(KubeClient, name) for name, each in kept.items())


async def test_it_passes_reads_on():
    server = Server()
    reader = ReadOnlyClient(server)  # type: ignore[arg-type]
    assert (await reader.get("/version", timeout=2.0)).body == b"{}"
    assert reader.stream("/api/v1/pods", params={}, read_timeout=1.0) == "a stream"
    assert server.asked == [("GET", "/version", None, 2.0), ("stream", "/api/v1/pods", {}, 1.0)]
    with pytest.raises(AttributeError):
        reader.request  # noqa: B018
