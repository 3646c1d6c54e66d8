"""Failures as the API server reports them: a ``Status`` object with a code, a reason and details.

Texts and reasons are those a kube-apiserver 1.36 gives, because clients match on them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from app.sim.resources.kinds import Kind


class Cause(NamedTuple):
    """One mistake in an object: a machine-readable reason, a text and the path of the field."""

    reason: str
    message: str
    field: str


class ApiError(Exception):
    """A request that fails; ``status()`` is the body of the answer."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        metadata: dict[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self._details = details
        self._metadata = metadata or {}

    def status(self) -> dict[str, Any]:
        """Returns the ``Status`` object in the field order of the real server."""
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self._metadata,
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        details = dict(self._details) if self._details is not None else {}
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if details or self._details is not None:
            body["details"] = details
        return body | {"code": self.code}


def success(*, code: int | None = None, details: dict[str, Any] | None = None) -> dict[str, Any]:
    """A ``Status`` for success."""
    body: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
    }
    if details is not None:
        body["details"] = details
    if code is not None:
        body["code"] = code
    return body


def details_of(kind: Kind, name: str, *, as_kind: bool = False) -> dict[str, Any]:
    """The details of a Status: the resource (``pods``), or the kind (``Pod``) where the real server gives that."""
    details = {"name": name, "group": kind.group, "kind": kind.kind if as_kind else kind.plural}
    return {key: value for key, value in details.items() if value}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def internal(message: str) -> ApiError:
    """500 without a reason, as the real server answers a few malformed requests."""
    return ApiError(500, "", message)


def unknown_resource() -> ApiError:
    message = "the server could not find the requested resource"
    return ApiError(404, "NotFound", message, details={})


def unserved_subresource(kind: Kind, name: str) -> ApiError:
    """404 for ``pods/exec`` and the like. The details are empty, so that kubectl does not report a missing object."""
    message = (
        f"the embedded cluster does not serve {kind.plural}/{name}: "
        "its containers only pretend to run"
    )
    return ApiError(404, "NotFound", message, details={})


def method_not_allowed() -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message, details={})


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        + ", ".join(accepted)
    )
    return ApiError(415, "UnsupportedMediaType", message)


def not_acceptable() -> ApiError:
    message = "only the following media types are accepted: application/json"
    return ApiError(406, "NotAcceptable", message, details={})


def not_found(kind: Kind, name: str) -> ApiError:
    message = f'{kind.resource} "{name}" not found'
    return ApiError(404, "NotFound", message, details=details_of(kind, name))


def already_exists(kind: Kind, name: str, *, is_going: bool = False) -> ApiError:
    message = f'{kind.resource} "{name}" already exists'
    if is_going:
        message = f"object is being deleted: {message}"
    return ApiError(409, "AlreadyExists", message, details=details_of(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=details_of(kind, name))


def conflict_with_kind(kind: Kind, name: str, why: str) -> ApiError:
    """409 of a deletion's preconditions, which names the kind (``Pod``) and not the resource."""
    message = f'Operation cannot be fulfilled on {kind.qualified_kind} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=details_of(kind, name, as_kind=True))


def modified(kind: Kind, name: str) -> ApiError:
    """409: the writer did not have the latest version."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def uid_mismatch(kind: Kind, namespace: str, name: str, *, wanted: str, found: str) -> ApiError:
    """409: the precondition has the uid of another object with this name."""
    key = "/".join(filter(None, ("/registry", kind.plural, namespace, name)))
    why = (
        f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    )
    return conflict(kind, name, why)


def forbidden(kind: Kind, name: str, why: str, *, causes: Sequence[Cause] = ()) -> ApiError:
    details = details_of(kind, name)
    if causes:
        details["causes"] = [cause._asdict() for cause in causes]
    message = f'{kind.resource} "{name}" is forbidden: {why}'
    return ApiError(403, "Forbidden", message, details=details)


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    """422: the object is invalid, for the reasons in ``causes``."""
    return _invalid(kind.qualified_kind, name, details_of(kind, name, as_kind=True), causes)


def invalid_options(options: str, causes: Sequence[Cause]) -> ApiError:
    """422: the options of the request (``ListOptions``, ``PatchOptions`` ...) are invalid."""
    details = {"group": "meta.k8s.io", "kind": options}
    return _invalid(f"{options}.meta.k8s.io", "", details, causes)


def _invalid(what: str, name: str, details: dict[str, Any], causes: Sequence[Cause]) -> ApiError:
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = details | {"causes": [cause._asdict() for cause in causes]}
    return ApiError(422, "Invalid", f'{what} "{name}" is invalid: {text}', details=details)


def unprocessable(message: str) -> ApiError:
    """422 for a patch that cannot be applied."""
    return ApiError(422, "Invalid", message, details={})


def expired(message: str, *, metadata: dict[str, Any] | None = None) -> ApiError:
    """410: the requested version was compacted."""
    return ApiError(410, "Expired", message, metadata=metadata)


def too_large_resource_version(wanted: int, current: int) -> ApiError:
    """504: the requested version does not exist yet."""
    text = "Too large resource version"
    return ApiError(
        504,
        "Timeout",
        f"Timeout: {text}: {wanted}, current: {current}",
        details={"causes": [{"reason": "ResourceVersionTooLarge", "message": text}]},
        retry_after=1,
    )


def too_many_requests(message: str, cause: str, *, retry_after: int | None = None) -> ApiError:
    """429 of the eviction subresource: a disruption budget does not allow it."""
    details = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    return ApiError(429, "TooManyRequests", message, details=details, retry_after=retry_after)


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", "Required value" + (f": {detail}" if detail else ""), field)


def invalid_value(field: str, value: object, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {_shown(value)}: {detail}", field)


def duplicate_value(field: str, value: object) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {_shown(value)}", field)


def not_among(field: str, value: str, where: str, names: Sequence[str]) -> Cause:
    """The mistake of a name that is not defined in another field."""
    found = f": {', '.join(names)}" if names else " which is empty"
    message = f"Not found: {_shown(value)}: must be one of the names in {where}{found}"
    return Cause("FieldValueNotFound", message, field)


def too_long(field: str, limit: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", field)


def too_many(field: str, found: int, limit: int) -> Cause:
    message = f"Too many: {found}: must have at most {limit} item{'s' * (limit != 1)}"
    return Cause("FieldValueTooMany", message, field)


def _shown(value: object) -> str:
    """A value in an error: strings in quotes, everything else as JSON."""
    return f'"{value}"' if isinstance(value, str) else msgspec.json.encode(value).decode()


def forbidden_value(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def unsupported_value(field: str, value: str, supported: Sequence[str]) -> Cause:
    names = ", ".join(f'"{name}"' for name in supported)
    message = f"Unsupported value: {value}: supported values: {names}"
    return Cause("FieldValueNotSupported", message, field)
