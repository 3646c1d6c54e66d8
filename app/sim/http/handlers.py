"""Requests to answers: what each method does on a collection, an object or a subresource.

A request is decoded into an ``ApiCall`` and answered by a synchronous method; only watches, which go on, are
coroutines.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from aiohttp import web

from app.sim.api import JSON_PATCH, Api
from app.sim.errors import (
    ApiError,
    bad_request,
    details_of,
    method_not_allowed,
    not_found,
    success,
    unserved_subresource,
    unsupported_media_type,
)
from app.sim.http.negotiation import JSON, YAML, decode_body, decode_patch, representation_for
from app.sim.http.protobuf import PROTOBUF
from app.sim.http.protobuf_messages import WITH_STATUS
from app.sim.http.representation import Representation
from app.sim.http.routes import ResourcePath
from app.sim.listing import ListOptions, list_page, parse_list_options
from app.sim.patches.json_patch import apply_json_patch, apply_merge_patch
from app.sim.resources.deletion import (
    delete,
    delete_collection,
    parse_delete_options,
    parse_dry_run,
)
from app.sim.resources.kinds import Kind, is_stored
from app.sim.resources.pod_subresources import bind, binding_name, evict
from app.sim.resources.reviews import Reviewer
from app.sim.resources.scale import rescaled, scale_of
from app.sim.resources.usage import usage
from app.sim.store import Record

_encode: Final = msgspec.json.Encoder().encode
_NO_QUERY: Final[Mapping[str, str]] = {}


@dataclass(slots=True)
class ApiCall:
    """A request to the API."""

    method: str
    target: ResourcePath
    query: Mapping[str, str]
    body: bytes
    content_type: str
    accept: str
    token: str
    """Bearer token, or empty."""

    @property
    def kind(self) -> Kind:
        return self.target.kind

    @property
    def namespace(self) -> str:
        """The namespace of a request that must have one. Raises 405, as the real server does."""
        if self.target.namespace is None:
            raise method_not_allowed()
        return self.target.namespace

    def decoded(self, kind: str = "") -> Any:
        """The object in the body. Statuses of most kinds are not read from protobuf. Raises 400 or 415."""
        is_status = self.target.subresource == "status"
        if self.content_type == PROTOBUF and is_status and self.kind.kind not in WITH_STATUS:
            raise unsupported_media_type([JSON, YAML])
        return decode_body(self.body, self.content_type, kind or self.kind.kind)

    def dry_run(self, options: str) -> bool:
        return parse_dry_run(self.query.get("dryRun"), options)


def json_response(raw: bytes, status: int = 200) -> web.Response:
    return web.Response(body=raw, status=status, content_type=JSON)


def status_response(error: ApiError) -> web.Response:
    """The answer to a request that failed."""
    response = json_response(_encode(error.status()), error.code)
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response


def make_call(request: web.BaseRequest, target: ResourcePath, body: bytes) -> ApiCall:
    """The call that an HTTP request means."""
    url, headers = request.rel_url, request.headers
    return ApiCall(
        method=request.method,
        target=target,
        query=url.query if url.raw_query_string else _NO_QUERY,
        body=body,
        content_type=headers.get("Content-Type", "").partition(";")[0].strip(),
        accept=headers.get("Accept", ""),
        token=headers.get("Authorization", "").removeprefix("Bearer "),
    )


def _no_controller(kind: Kind) -> str:
    """A warning that kubectl prints (RFC 7234, 5.5)."""
    return f'299 - "the embedded cluster has no controller for {kind.resource}: no pods are made"'


class Handlers:
    """Answers calls from the objects of an Api."""

    def __init__(self, api: Api, reviewer: Reviewer, *, idle: Collection[str] = ()) -> None:
        """``idle``: the names of kinds whose creation is answered with a warning, because no controller
        acts on them.
        """
        self._api = api
        self._idle = idle
        self._reviewer = reviewer
        self._on_collection: Mapping[str, Callable[[ApiCall], web.Response]] = {
            "GET": self._list,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._on_object: Mapping[str, Callable[[ApiCall], web.Response]] = {
            "GET": self._get,
            "PUT": self._update,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        self._on_subresource: Mapping[tuple[str, str], Callable[[ApiCall], web.Response]] = {
            ("binding", "POST"): self._bind,
            ("eviction", "POST"): self._evict,
            ("log", "GET"): self._log,
            ("status", "GET"): self._get,
            ("status", "PUT"): self._update,
            ("status", "PATCH"): self._patch,
            ("finalize", "PUT"): self._update,
            ("scale", "GET"): self._get_scale,
            ("scale", "PUT"): self._put_scale,
            ("scale", "PATCH"): self._patch_scale,
        }

    def answer(self, call: ApiCall) -> web.Response:
        """Handles a call. Raises ApiError."""
        target = call.target
        if target.subresource:
            return self._subresource(call)
        if not is_stored(target.kind):
            return self._metrics(call) if "get" in target.kind.verbs else self._review(call)
        table = self._on_object if target.name else self._on_collection
        handler = table.get(call.method)
        if handler is None:
            raise method_not_allowed()
        return handler(call)

    def watch_options(self, call: ApiCall) -> ListOptions | None:
        """Returns the options if the call is a watch."""
        if call.method != "GET" or call.target.name or "watch" not in call.query:
            return None
        options = parse_list_options(call.kind, call.query)
        return options if options.watch else None

    def representation(self, call: ApiCall) -> Representation:
        return representation_for(call.kind, call.accept, call.query, self._api.now)

    def _subresource(self, call: ApiCall) -> web.Response:
        name = call.target.subresource
        if all(sub.name != name for sub in call.kind.all_subresources):
            raise unserved_subresource(call.kind, name)
        handler = self._on_subresource.get((name, call.method))
        if handler is None:
            raise method_not_allowed()
        return handler(call)

    def _one(self, call: ApiCall, record: Record, status: int = 200) -> web.Response:
        response = json_response(self.representation(call).one(record), status)
        if status == 201 and call.kind.kind in self._idle:
            response.headers["Warning"] = _no_controller(call.kind)
        return response

    def _get(self, call: ApiCall) -> web.Response:
        return self._one(call, self._api.get(call.kind, call.namespace, call.target.name))

    def _list(self, call: ApiCall) -> web.Response:
        options = parse_list_options(call.kind, call.query)
        page = list_page(self._api.store, call.kind, call.target.namespace, options)
        return json_response(self.representation(call).many(page.records, page.metadata))

    def _create(self, call: ApiCall) -> web.Response:
        dry_run = call.dry_run("CreateOptions")
        record = self._api.create(call.kind, call.namespace, call.decoded(), dry_run=dry_run)
        return self._one(call, record, 201)

    def _update(self, call: ApiCall) -> web.Response:
        record, outcome = self._api.update(
            call.kind,
            call.namespace,
            call.target.name,
            call.decoded(),
            subresource=call.target.subresource,
            dry_run=call.dry_run("UpdateOptions"),
        )
        return self._one(call, record, 201 if outcome == "created" else 200)

    def _patch(self, call: ApiCall) -> web.Response:
        record, outcome = self._api.patch(
            call.kind,
            call.namespace,
            call.target.name,
            decode_patch(call.body),
            patch_type=call.content_type,
            field_manager=call.query.get("fieldManager", ""),
            subresource=call.target.subresource,
            dry_run=call.dry_run("PatchOptions"),
        )
        return self._one(call, record, 201 if outcome == "created" else 200)

    def _delete(self, call: ApiCall) -> web.Response:
        options = parse_delete_options(self._optional_body(call), call.query)
        name = call.target.name
        record, finished = delete(self._api, call.kind, call.namespace, name, options)
        if call.kind.returns_deleted or not finished:
            return self._one(call, record)
        details = details_of(call.kind, name) | {"uid": record.value["metadata"]["uid"]}
        return json_response(_encode(success(details=details)))

    def _delete_collection(self, call: ApiCall) -> web.Response:
        if "deletecollection" not in call.kind.verbs:
            raise method_not_allowed()
        options = parse_delete_options(self._optional_body(call), call.query)
        selected = parse_list_options(call.kind, call.query)
        page = list_page(self._api.store, call.kind, call.namespace, selected)
        records = delete_collection(self._api, call.kind, page.records, options)
        return json_response(self.representation(call).many(records, page.metadata))

    def _optional_body(self, call: ApiCall) -> Any:
        return call.decoded("DeleteOptions") if call.body else None

    def _bind(self, call: ApiCall) -> web.Response:
        self._bind_pod(call, call.target.name, call.decoded("Binding"))
        return json_response(_encode(success(code=201)), 201)

    def _bind_pod(self, call: ApiCall, name: str, binding: Any) -> None:
        bind(self._api, call.namespace, name, binding, dry_run=call.dry_run("CreateOptions"))

    def _evict(self, call: ApiCall) -> web.Response:
        evict(self._api, call.namespace, call.target.name, call.decoded("Eviction"))
        return json_response(_encode(success(code=201)), 201)

    def _log(self, call: ApiCall) -> web.Response:
        self._api.get(call.kind, call.namespace, call.target.name)
        raise bad_request("the containers of this cluster only pretend to run and have no logs")

    def _get_scale(self, call: ApiCall) -> web.Response:
        record = self._api.get(call.kind, call.namespace, call.target.name)
        return json_response(_encode(scale_of(record.value)))

    def _put_scale(self, call: ApiCall) -> web.Response:
        return self._rescale(call, call.decoded("Scale"))

    def _patch_scale(self, call: ApiCall) -> web.Response:
        record = self._api.get(call.kind, call.namespace, call.target.name)
        patch = decode_patch(call.body)
        if call.content_type == JSON_PATCH:
            return self._rescale(call, apply_json_patch(scale_of(record.value), patch))
        return self._rescale(call, apply_merge_patch(scale_of(record.value), patch))

    def _rescale(self, call: ApiCall, scale: Any) -> web.Response:
        record = self._api.get(call.kind, call.namespace, call.target.name)
        value = rescaled(call.kind, record.value, scale)
        record, _ = self._api.update(
            call.kind, call.namespace, record.name, value, dry_run=call.dry_run("UpdateOptions")
        )
        return json_response(_encode(scale_of(record.value)))

    def _metrics(self, call: ApiCall) -> web.Response:
        """What metrics-server answers: the use of nodes and pods."""
        if call.method != "GET":
            raise method_not_allowed()
        representation, namespace = self.representation(call), call.target.namespace
        records = [Record(value, self._api.store.revision) for value in usage(self._api, call.kind)]
        if call.target.name:
            wanted = (namespace or "", call.target.name)
            for record in records:
                if (record.namespace, record.name) == wanted:
                    return json_response(representation.one(record))
            raise not_found(call.kind, call.target.name)
        selector = parse_list_options(call.kind, call.query).selector
        chosen = [
            record
            for record in records
            if namespace in (None, record.namespace) and selector.matches(record.value)
        ]
        return json_response(representation.many(chosen, {}))

    def _review(self, call: ApiCall) -> web.Response:
        """Bindings and reviews, which are answered but not stored."""
        if call.method != "POST" or call.target.name:
            raise method_not_allowed()
        body = call.decoded()
        if call.kind.kind == "Binding":
            self._bind_pod(call, binding_name(body), body)
            return json_response(_encode(success(code=201)), 201)
        return json_response(_encode(self._reviewer.review(call.kind, body, call.token)), 201)
