"""A model API server: objects, versions, watches, and the few subresources that a scheduler needs.

It shares nothing with the embedded cluster of the product (app.sim), so that no mistake is made twice. It never fails
and never waits: what goes wrong between it and its clients is the network's business.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

Manifest = dict[str, Any]

encode = msgspec.json.Encoder().encode
decode = msgspec.json.Decoder().decode

PODS = ("/api/v1", "pods")
NODES = ("/api/v1", "nodes")
VOLUMES = ("/api/v1", "persistentvolumes")
CLAIMS = ("/api/v1", "persistentvolumeclaims")
NAMESPACES = ("/api/v1", "namespaces")
STORAGE_CLASSES = ("/apis/storage.k8s.io/v1", "storageclasses")
CSI_NODES = ("/apis/storage.k8s.io/v1", "csinodes")
BUDGETS = ("/apis/policy/v1", "poddisruptionbudgets")
LEASES = ("/apis/coordination.k8s.io/v1", "leases")
EVENTS = ("/apis/events.k8s.io/v1", "events")
DEVICE_CLAIMS = ("/apis/resource.k8s.io/v1", "resourceclaims")
DEVICE_CLASSES = ("/apis/resource.k8s.io/v1", "deviceclasses")
SLICES = ("/apis/resource.k8s.io/v1", "resourceslices")
POD_GROUPS = ("/apis/scheduling.k8s.io/v1alpha2", "podgroups")
#: Those of Kubernetes 1.37, which a test may have served instead.
NEWER_POD_GROUPS = ("/apis/scheduling.k8s.io/v1beta1", "podgroups")

#: What the server has, by group and version.
SERVED = {
    root: [resource for each, resource in every if each == root]
    for every in [
        [
            *(PODS, NODES, VOLUMES, CLAIMS, NAMESPACES, STORAGE_CLASSES, CSI_NODES, BUDGETS),
            *(LEASES, EVENTS, DEVICE_CLAIMS, DEVICE_CLASSES, SLICES, POD_GROUPS),
            *[
                ("/apis/storage.k8s.io/v1", name)
                for name in ("csidrivers", "csistoragecapacities", "volumeattachments")
            ],
        ]
    ]
    for root, _ in every
}

#: Objects on one page of a list, where a limit is asked for: few, so that lists have several pages.
PAGE = 8


class Answer(NamedTuple):
    """What the server says to one request."""

    status: int
    body: bytes
    headers: Mapping[str, str] = {}


class RefusedError(Exception):
    """A request that the server does not carry out."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.answer = status_answer(status, reason, message)


def status_answer(
    status: int, reason: str, message: str, headers: Mapping[str, str] | None = None
) -> Answer:
    """A refusal as API servers put it: a Status."""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": status,
    }
    return Answer(status, encode(body), headers or {})


class Request(Protocol):
    """What the server looks at of a request."""

    method: str
    path: str
    params: Mapping[str, str]
    body: bytes


class Write(NamedTuple):
    """One change of one object. ``old`` is None for a new one, ``new`` for one that is gone."""

    version: int
    resource: tuple[str, str]
    key: str
    old: Manifest | None
    new: Manifest | None
    #: Who asked for it; None: the world itself.
    request: Any


class Stored(NamedTuple):
    """One version of one object."""

    manifest: Manifest
    raw: bytes


class Entry(NamedTuple):
    """One change as watches tell it."""

    version: int
    type: str
    #: Whether it is one of those that have not ended, before and after. Pods only.
    was_live: bool
    is_live: bool
    stored: Stored


class Collection:
    """All objects of one kind, and what has become of them lately."""

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.log: list[Entry] = []
        #: The version before which the log does not reach.
        self.forgotten = 0
        #: What is left of lists of which some pages have been asked for, by token.
        self.lists: dict[str, list[Stored]] = {}
        self.watches: list[Watch] = []


class Watch:
    """One client's view of a collection. ``send`` is called with each line and the object's change."""

    def __init__(
        self,
        collection: Collection,
        live_only: bool,
        name: str,
        send: Callable[[bytes, Entry], None],
    ) -> None:
        self.collection = collection
        self._live_only = live_only
        self._name = name
        self.send = send

    def tell(self, entry: Entry) -> None:
        kind = entry.type
        if self._name and entry.stored.manifest["metadata"]["name"] != self._name:
            return
        if self._live_only:
            if not (entry.was_live or entry.is_live):
                return
            if kind == "MODIFIED" and entry.was_live != entry.is_live:
                kind = "ADDED" if entry.is_live else "DELETED"
        line = b'{"type":"%b","object":%b}\n' % (kind.encode(), entry.stored.raw)
        self.send(line, entry._replace(type=kind))

    def close(self) -> None:
        """Harmless when closed."""
        if self in self.collection.watches:
            self.collection.watches.remove(self)


class Path(NamedTuple):
    """A request's path, taken apart."""

    resource: tuple[str, str]
    namespace: str
    name: str
    subresource: str


@functools.lru_cache(4096)
def parse(path: str) -> Path:
    """``/apis/<group>/<version>[/namespaces/<namespace>]/<resource>[/<name>[/<subresource>]]``."""
    parts = path.strip("/").split("/")
    length = 2 if parts[0] == "api" else 3
    root, rest, namespace = "/" + "/".join(parts[:length]), parts[length:], ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    resource, name, sub = [*rest, "", "", ""][:3]
    return Path((root, resource), namespace, name, sub)


def key_of(manifest: Manifest) -> str:
    """``namespace/name``, or the name alone."""
    meta = manifest["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if "namespace" in meta else meta["name"]


def is_live(pod: Manifest) -> bool:
    """Whether a pod has not ended."""
    return pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}


class ApiServer:
    """The objects of one cluster."""

    def __init__(self, on_write: Callable[[Write], None]) -> None:
        self._pages = 0
        self.version = 0
        self._on_write = on_write
        self._collections: dict[tuple[str, str], Collection] = {}
        self._uids = 0

    def collection(self, resource: tuple[str, str]) -> Collection:
        """All of a kind."""
        found = self._collections.get(resource)
        if found is None:
            found = self._collections[resource] = Collection()
        return found

    def get(self, resource: tuple[str, str], key: str) -> Manifest | None:
        """One object, None if there is none."""
        stored = self.collection(resource).objects.get(key)
        return None if stored is None else stored.manifest

    def all(self, resource: tuple[str, str]) -> list[Manifest]:
        """All objects of a kind. None of them may be changed."""
        return [stored.manifest for stored in self.collection(resource).objects.values()]

    # ------------------------------------------------------------ what the world does

    def create(
        self, resource: tuple[str, str], manifest: Manifest, request: Any = None
    ) -> Manifest:
        """Stores a new object. Raises RefusedError if there is one by its name."""
        key = key_of(manifest)
        if key in self.collection(resource).objects:
            raise RefusedError(409, "AlreadyExists", f'{resource[1]} "{key}" already exists')
        self._uids += 1
        meta = {**manifest["metadata"], "uid": f"uid-{self._uids}", "generation": 1}
        return self._store(resource, key, None, {**manifest, "metadata": meta}, request)

    def update(
        self, resource: tuple[str, str], key: str, manifest: Manifest, request: Any = None
    ) -> Manifest:
        """Stores a new version of an object. Raises RefusedError if there is none."""
        return self._store(resource, key, self._existing(resource, key), manifest, request)

    def merge(self, resource: tuple[str, str], key: str, changes: Manifest) -> Manifest:
        """Merges changes into an object, as a merge patch does."""
        return self.update(resource, key, merged(self._existing(resource, key), changes))

    def remove(self, resource: tuple[str, str], key: str, request: Any = None) -> None:
        """Takes an object away, whatever its finalizers and its grace period. Raises RefusedError if there is none."""
        old = self._existing(resource, key)
        self.version += 1
        last = {**old, "metadata": {**old["metadata"], "resourceVersion": str(self.version)}}
        collection = self.collection(resource)
        del collection.objects[key]
        was_live = resource != PODS or is_live(old)
        self._log(collection, Entry(self.version, "DELETED", was_live, False, _stored(last)))
        self._on_write(Write(self.version, resource, key, old, None, request))

    def forget_history(self) -> None:
        """Compaction: watches from versions of the past have to list again."""
        for collection in self._collections.values():
            collection.forgotten = self.version
            collection.log.clear()
            collection.lists.clear()

    # ------------------------------------------------------------ what clients ask for

    def handle(self, request: Request) -> Answer:
        """Carries out one request that is no watch."""
        path = parse(request.path)
        try:
            if path.resource[1] and path.resource[0] not in SERVED:
                raise _unknown()
            match request.method:
                case "GET" if path.name:
                    return Answer(200, self._found(path).raw)
                case "GET" if path.resource[1]:
                    return self._list(path, request.params)
                case "GET":
                    return _discovery(path.resource[0])
                case "POST" if path.subresource == "binding":
                    return self._bind(path, request)
                case "POST":
                    manifest = decode(request.body)
                    if path.namespace:
                        manifest["metadata"]["namespace"] = path.namespace
                    created = self.create(path.resource, manifest, request)
                    return Answer(201, encode(created))
                case "PUT":
                    return self._replace(path, request)
                case "PATCH":
                    return self._patch(path, request)
                case "DELETE":
                    return self._delete(path, request)
        except RefusedError as refused:
            return refused.answer
        return status_answer(405, "MethodNotAllowed", request.method)

    def watch(self, request: Request, send: Callable[[bytes, Entry], None]) -> Answer | Watch:
        """Opens a watch, whose lines since the version asked for are sent at once; or refuses."""
        path, params = parse(request.path), request.params
        collection = self.collection(path.resource)
        since = int(params.get("resourceVersion", "0"))
        if since and since < collection.forgotten:
            return status_answer(410, "Expired", f"too old resource version: {since}")
        selector = params.get("fieldSelector", "")
        name = selector.removeprefix("metadata.name=") if "metadata.name=" in selector else ""
        watch = Watch(collection, "status.phase" in selector, name, send)
        if not since:
            for stored in list(collection.objects.values()):
                watch.tell(Entry(self.version, "ADDED", False, True, stored))
        for entry in collection.log:
            if entry.version > since > 0:
                watch.tell(entry)
        collection.watches.append(watch)
        return watch

    # ------------------------------------------------------------ one verb each

    def _list(self, path: Path, params: Mapping[str, str]) -> Answer:
        """One page. All pages of a list show the same moment."""
        collection = self.collection(path.resource)
        token = params.get("continue", "")
        version = token.partition(" ")[0] or str(self.version)
        if token:
            if token not in collection.lists:
                raise RefusedError(410, "Expired", "the provided continue parameter is too old")
            items = collection.lists.pop(token)
        else:
            selector = params.get("fieldSelector", "")
            name = selector.removeprefix("metadata.name=") if "metadata.name=" in selector else ""
            items = [
                stored
                for key, stored in sorted(collection.objects.items())
                if key.startswith(path.namespace)
                and ("status.phase" not in selector or is_live(stored.manifest))
                and (not name or stored.manifest["metadata"]["name"] == name)
            ]
        meta = {"resourceVersion": version}
        if "limit" in params and len(items) > PAGE:
            self._pages += 1
            meta["continue"] = f"{version} {self._pages}"
            collection.lists[meta["continue"]] = items[PAGE:]
            items = items[:PAGE]
        raw = b",".join([stored.raw for stored in items])
        return Answer(200, b'{"kind":"List","metadata":%b,"items":[%b]}' % (encode(meta), raw))

    def _found(self, path: Path) -> Stored:
        stored = self.collection(path.resource).objects.get(_key(path))
        if stored is None:
            raise RefusedError(404, "NotFound", f'{path.resource[1]} "{path.name}" not found')
        return stored

    def _bind(self, path: Path, request: Request) -> Answer:
        pod, binding = self._found(path).manifest, decode(request.body)
        meta, name = pod["metadata"], path.name
        _same_uid(meta, binding["metadata"].get("uid"), path)
        if "deletionTimestamp" in meta:
            raise _conflict("pods/binding", name, f"pod {name} is being deleted")
        if node := pod["spec"].get("nodeName"):
            raise _conflict(
                "pods/binding", name, f'pod {name} is already assigned to node "{node}"'
            )
        spec = {**pod["spec"], "nodeName": binding["target"]["name"]}
        scheduled = {"type": "PodScheduled", "status": "True"}
        status = _with_condition(pod.get("status", {}), scheduled)
        self.update(PODS, _key(path), {**pod, "spec": spec, "status": status}, request)
        return Answer(201, b'{"kind":"Status","status":"Success","code":201}')

    def _replace(self, path: Path, request: Request) -> Answer:
        old, new = self._found(path).manifest, decode(request.body)
        _same_version(old["metadata"], new["metadata"], path)
        _same_uid(old["metadata"], new["metadata"].get("uid"), path)
        meta = {**new["metadata"], "uid": old["metadata"]["uid"]}
        return Answer(
            200, encode(self.update(path.resource, _key(path), {**new, "metadata": meta}, request))
        )

    def _patch(self, path: Path, request: Request) -> Answer:
        old, patch = self._found(path).manifest, decode(request.body)
        meta = patch.pop("metadata", {})
        _same_version(old["metadata"], meta, path)
        _same_uid(old["metadata"], meta.pop("uid", None), path)
        meta.pop("resourceVersion", None)
        if path.resource in {PODS, POD_GROUPS, NEWER_POD_GROUPS}:
            status = old.get("status", {})
            for condition in patch["status"].pop("conditions", ()):
                status = _with_condition(status, condition)
            new = {**old, "status": merged(status, patch["status"])}
        else:
            new = merged(old, {**patch, "metadata": meta})
        return Answer(200, encode(self.update(path.resource, _key(path), new, request)))

    def _delete(self, path: Path, request: Request) -> Answer:
        """A pod on a node gets its time to end; the kubelet removes it then."""
        old, options = self._found(path).manifest, decode(request.body or b"{}")
        _same_uid(old["metadata"], options.get("preconditions", {}).get("uid"), path)
        if path.resource != PODS or not old["spec"].get("nodeName") or not is_live(old):
            self.remove(path.resource, _key(path), request)
        elif "deletionTimestamp" not in old["metadata"]:
            meta = {**old["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            self.update(path.resource, _key(path), {**old, "metadata": meta}, request)
        return Answer(200, b'{"kind":"Status","status":"Success"}')

    # ------------------------------------------------------------ storing

    def _existing(self, resource: tuple[str, str], key: str) -> Manifest:
        stored = self.collection(resource).objects.get(key)
        if stored is None:
            raise RefusedError(404, "NotFound", f'{resource[1]} "{key}" not found')
        return stored.manifest

    def _store(
        self, resource: tuple[str, str], key: str, old: Manifest | None, new: Manifest, request: Any
    ) -> Manifest:
        self.version += 1
        new = {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}
        collection, stored = self.collection(resource), _stored(new)
        collection.objects[key] = stored
        was_live = old is not None and (resource != PODS or is_live(old))
        lives = resource != PODS or is_live(new)
        kind = "ADDED" if old is None else "MODIFIED"
        self._log(collection, Entry(self.version, kind, was_live, lives, stored))
        self._on_write(Write(self.version, resource, key, old, new, request))
        return new

    def _log(self, collection: Collection, entry: Entry) -> None:
        collection.log.append(entry)
        for watch in list(collection.watches):
            watch.tell(entry)


def _unknown() -> RefusedError:
    return RefusedError(404, "NotFound", "the server could not find the requested resource")


def merged(old: Any, changes: Any) -> Any:
    """A JSON merge patch (RFC 7386)."""
    if not isinstance(changes, dict):
        return changes
    new = dict(old) if isinstance(old, dict) else {}
    for name, change in changes.items():
        if change is None:
            new.pop(name, None)
        else:
            new[name] = merged(new.get(name), change)
    return new


def _discovery(root: str) -> Answer:
    """What there is of a group and version; all groups for ``/apis``."""
    group = root.removeprefix("/apis").strip("/")
    if root in SERVED:
        resources = [{"name": name} for name in SERVED[root]]
        return Answer(200, encode({"kind": "APIResourceList", "resources": resources}))
    if group:
        raise _unknown()
    versions = [each.removeprefix("/apis/") for each in SERVED]
    groups = [{"versions": [{"groupVersion": version}]} for version in versions]
    return Answer(200, encode({"kind": "APIGroupList", "groups": groups}))


def _with_condition(status: Manifest, condition: Manifest) -> Manifest:
    """A status with one condition changed, by its type."""
    conditions = {c["type"]: c for c in status.get("conditions", ())}
    conditions[condition["type"]] = {**conditions.get(condition["type"], {}), **condition}
    return {**status, "conditions": list(conditions.values())}


def _stored(manifest: Manifest) -> Stored:
    return Stored(manifest, encode(manifest))


def _key(path: Path) -> str:
    return f"{path.namespace}/{path.name}" if path.namespace else path.name


def _same_uid(meta: Manifest, uid: str | None, path: Path) -> None:
    if uid is not None and uid != meta["uid"]:
        text = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {meta['uid']}"
        raise _conflict(path.resource[1], path.name, text)


def _same_version(meta: Manifest, given: Manifest, path: Path) -> None:
    version = given.get("resourceVersion")
    if version is not None and version != meta["resourceVersion"]:
        text = "the object has been modified; please apply your changes to the latest version"
        raise _conflict(path.resource[1], path.name, text)


def _conflict(resource: str, name: str, text: str) -> RefusedError:
    return RefusedError(
        409, "Conflict", f'Operation cannot be fulfilled on {resource} "{name}": {text}'
    )
