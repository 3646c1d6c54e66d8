"""A thin client for the embedded cluster, and objects to send."""

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
EVENTS = "/api/v1/namespaces/default/events"
EVENTS_V1 = "/apis/events.k8s.io/v1/namespaces/default/events"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
PRIORITY_CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RESOURCE_CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
RUNTIME_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class Answer(NamedTuple):
    status: int
    body: Any

    @property
    def message(self) -> str:
        return self.body["message"]


class Watch:
    """The events of a watch, one at a time."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def next(self) -> dict[str, Any]:
        """The next event; raises EOFError at the end of the stream."""
        line = await self.response.content.readline()
        if not line:
            raise EOFError
        return json.loads(line)

    async def seen(self) -> tuple[str, str]:
        """The next event's type and name."""
        event = await self.next()
        return event["type"], event["object"]["metadata"].get("name", "")

    async def rest(self) -> list[dict[str, Any]]:
        """All events until the stream ends."""
        events = []
        try:
            while True:
                events.append(await self.next())
        except EOFError:
            return events


class Client:
    """Requests with JSON bodies; answers with their status."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        accept: str = "application/json",
        **params: str,
    ) -> Answer:
        data = (
            body
            if isinstance(body, bytes | io.BytesIO) or body is None
            else json.dumps(body).encode()
        )
        headers = {"Accept": accept} | ({"Content-Type": content_type} if data is not None else {})
        async with self.session.request(
            method, self.url + path, data=data, headers=headers, params=params
        ) as response:
            text = await response.read()
            is_json = response.content_type == "application/json"
            return Answer(response.status, json.loads(text) if is_json else text)

    async def get(self, path: str, **options: str) -> Answer:
        return await self.request("GET", path, **options)

    async def post(self, path: str, body: Any, **options: str) -> Answer:
        return await self.request("POST", path, body, **options)

    async def put(self, path: str, body: Any, **options: str) -> Answer:
        return await self.request("PUT", path, body, **options)

    async def patch(self, path: str, body: Any, content_type: str = MERGE, **params: str) -> Answer:
        return await self.request("PATCH", path, body, content_type=content_type, **params)

    async def delete(self, path: str, body: Any = None, **params: str) -> Answer:
        return await self.request("DELETE", path, body, **params)

    async def create(self, path: str, body: Any) -> dict[str, Any]:
        """Creates an object that must be accepted, and returns it."""
        answer = await self.post(path, body)
        assert answer.status == 201, answer
        return answer.body

    async def names(self, path: str, **params: str) -> list[str]:
        answer = await self.get(path, **params)
        assert answer.status == 200, answer
        return [item["metadata"]["name"] for item in answer.body["items"]]

    @asynccontextmanager
    async def watch(
        self, path: str, *, accept: str = "application/json", **params: str
    ) -> AsyncIterator[Watch]:
        query = {"watch": "true", **params}
        async with self.session.get(
            self.url + path, params=query, headers={"Accept": accept}
        ) as response:
            assert response.status == 200, await response.text()
            yield Watch(response)


def config_map(name: str = "", **metadata: Any) -> dict[str, Any]:
    given = {"name": name} if name else {}
    return {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": given | metadata,
        "data": {"a": "b"},
    }


def pod(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "image": "pause:3.9"}], **spec},
    }


def binding(name: str, node: str, **metadata: Any) -> dict[str, Any]:
    return {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": name, **metadata},
        "target": {"kind": "Node", "name": node},
    }


def node(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}
