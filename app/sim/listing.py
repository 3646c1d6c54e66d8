"""Lists: which objects, at which revision, in pages that stay consistent.

A continue token carries the revision of the first page and the last key given out. Later pages are read from the past
state at that revision, so that a long list is one moment of the cluster however many requests it takes.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec

from app.sim.errors import (
    Cause,
    bad_request,
    expired,
    forbidden_value,
    invalid_options,
    too_large_resource_version,
    unsupported_value,
)
from app.sim.resources.kinds import Kind
from app.sim.selectors import ListSelector, compile_selector
from app.sim.store import Collection, Key, ObjectStore, Record

_MAX_DIGITS: Final = 20
"""Digits of the largest resourceVersion."""
_TOKEN_VERSION: Final = "meta.k8s.io/v1"  # noqa: S105 - not a secret
_LATEST: Final = -1
"""The revision in a continue token of an inconsistent list."""
_MATCHES: Final = ("Exact", "NotOlderThan", "")

_CONTINUE_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
_VERSION_EXPIRED: Final = "The resourceVersion for the provided list is too old."


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The validated query of a list or watch."""

    selector: ListSelector
    limit: int = 0
    """Objects per page; 0 means all."""
    continue_token: str = ""
    resource_version: int | None = None
    """None means the most recent one, 0 any."""
    match: str = ""
    """``Exact``, ``NotOlderThan`` or unset."""
    watch: bool = False
    timeout_seconds: int | None = None
    bookmarks: bool = False
    send_initial_events: bool | None = None


class Page(NamedTuple):
    records: list[Record]
    metadata: dict[str, Any]
    """``ListMeta``: resourceVersion, continue, remainingItemCount."""


def parse_list_options(kind: Kind, query: Mapping[str, str]) -> ListOptions:
    """Reads the query parameters of a list or watch. Raises 400 or 422."""
    options = ListOptions(
        selector=compile_selector(
            kind, query.get("labelSelector", ""), query.get("fieldSelector", "")
        ),
        limit=max(0, _integer(query.get("limit")) or 0),
        continue_token=query.get("continue", ""),
        resource_version=_revision(query.get("resourceVersion", "")),
        match=query.get("resourceVersionMatch", ""),
        watch=_boolean(query.get("watch")) or False,
        timeout_seconds=_integer(query.get("timeoutSeconds")),
        bookmarks=_boolean(query.get("allowWatchBookmarks")) or False,
        send_initial_events=_boolean(query.get("sendInitialEvents")),
    )
    _check_combination(options)
    return options


def _integer(text: str | None) -> int | None:
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None
    if not -(2**63) <= number < 2**63:
        raise bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def _revision(text: str) -> int | None:
    if not text:
        return None
    if not text.isdecimal() or len(text) > _MAX_DIGITS:
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{text}": '
            f'strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def _boolean(text: str | None) -> bool | None:
    """Reads a flag: a parameter that is present is true unless its value says otherwise."""
    if text is None:
        return None
    return text.lower() not in ("false", "0")


def _check_combination(options: ListOptions) -> None:
    causes = _match_mistakes(options)
    if options.send_initial_events is not None:
        if not options.watch:
            detail = "sendInitialEvents is forbidden for list"
            causes.append(forbidden_value("sendInitialEvents", detail))
        elif options.match != "NotOlderThan":
            detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            causes = [forbidden_value("resourceVersionMatch", detail)]
    if causes:
        raise invalid_options("ListOptions", causes)
    if options.continue_token and options.resource_version:
        raise bad_request("specifying resource version is not allowed when using continue")


def _match_mistakes(options: ListOptions) -> list[Cause]:
    field, match = "resourceVersionMatch", options.match
    if match not in _MATCHES:
        return [unsupported_value(field, f'"{match}"', _MATCHES)]
    if not match or options.send_initial_events is not None:
        return []
    if options.watch:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        return [forbidden_value(field, detail)]
    if options.resource_version is None:
        return [
            forbidden_value(
                field, "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        ]
    if match == "Exact" and options.resource_version == 0:
        detail = 'resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        return [forbidden_value(field, detail)]
    return []


def list_page(store: ObjectStore, kind: Kind, namespace: str | None, options: ListOptions) -> Page:
    """Reads one page. Raises 410 if the requested revision is compacted, 504 if it does not exist yet."""
    current = store[kind.storage]
    if options.continue_token:
        revision, after = _decode_token(options.continue_token)
        collection, revision = _at_token(store, current, revision, after)
    else:
        after = None
        collection, revision = _at_version(store, current, options)
    limit = 0 if options.resource_version == 0 else options.limit
    return _read(
        collection, namespace, options.selector, limit=limit, after=after, revision=revision
    )


def _at_version(
    store: ObjectStore, current: Collection, options: ListOptions
) -> tuple[Collection, int]:
    wanted = options.resource_version or 0
    if wanted > store.revision:
        raise too_large_resource_version(wanted, store.revision)
    exact = options.match == "Exact" or (wanted and options.limit and not options.match)
    if not exact:
        return current, store.revision
    if wanted < current.compacted:
        raise expired(_VERSION_EXPIRED)
    return current.at(wanted), wanted


def _at_token(
    store: ObjectStore, current: Collection, revision: int, after: Key
) -> tuple[Collection, int]:
    if revision == _LATEST:
        return current, store.revision
    if revision < current.compacted:
        token = _encode_token(_LATEST, after)
        raise expired(_CONTINUE_EXPIRED, metadata={"continue": token})
    return current.at(revision), revision


def _read(
    collection: Collection,
    namespace: str | None,
    selector: ListSelector,
    *,
    limit: int,
    after: Key | None,
    revision: int,
) -> Page:
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    single = _single(collection, namespace, selector)
    if single is not None and after is None:
        return Page([record for record in single if selector.selects(record)], metadata)
    rest = collection.ordered(namespace=namespace, after=after)
    selected = filter(selector.selects, rest) if selector else rest
    if not limit:
        return Page(list(selected), metadata)
    records = list(islice(selected, limit))
    if len(records) == limit and next(selected, None) is not None:
        last = records[-1]
        key = last.namespace, last.name
        metadata["continue"] = _encode_token(revision, key)
        if not selector:
            metadata["remainingItemCount"] = collection.count(namespace=namespace, after=key)
    return Page(records, metadata)


def _single(
    collection: Collection, namespace: str | None, selector: ListSelector
) -> list[Record] | None:
    """The only object that a selection by name in one namespace can match; None if there can be several."""
    if selector.only_name is None or namespace is None:
        return None
    record = collection.records.get((namespace, selector.only_name))
    return [record] if record is not None else []


def _encode_token(revision: int, key: Key) -> str:
    start = "/".join(key) + "\0"
    raw = msgspec.json.encode({"v": _TOKEN_VERSION, "rv": revision, "start": start})
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _decode_token(text: str) -> tuple[int, Key]:
    try:
        token = msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        namespace, _, name = token["start"].rstrip("\0").rpartition("/")
        return int(token["rv"]), (namespace, name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise bad_request(f"continue key is not valid: {error}") from error
