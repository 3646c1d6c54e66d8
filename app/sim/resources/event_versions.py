"""Objects in other versions than the stored one: events, and custom resources.

Events are stored as core ``v1`` and shown as ``events.k8s.io/v1`` too, where fields have other names
(``involvedObject`` /
``regarding``, ``message`` / ``note``). The versions of a custom resource differ by their name only.
"""

from typing import Final

from app.sim.errors import Cause, invalid_value, required
from app.sim.resources.kinds import BY_RESOURCE, EVENTS, Kind
from app.sim.store import Object

EVENTS_V1: Final = BY_RESOURCE["events.events.k8s.io"]

_NEW_NAMES: Final = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
_CORE_NAMES: Final = {new: core for core, new in _NEW_NAMES.items()}


def shown(kind: Kind, value: Object) -> Object:
    """Turns a stored object into the version of ``kind``."""
    if kind.stored_version:
        return value | {"apiVersion": kind.group_version}
    return _renamed(value, _NEW_NAMES, EVENTS_V1) if kind is EVENTS_V1 else value


def stored(kind: Kind, value: Object) -> Object:
    """Turns an object in the version of ``kind`` into the stored one."""
    if kind.stored_version:
        return value | {"apiVersion": kind.stored_version}
    return _renamed(value, _CORE_NAMES, EVENTS) if kind is EVENTS_V1 else value


def _renamed(event: Object, names: dict[str, str], kind: Kind) -> Object:
    renamed = {names.get(name, name): value for name, value in event.items()}
    return renamed | {"kind": kind.kind, "apiVersion": kind.group_version}


def set_event_defaults(event: Object) -> None:
    """Sets the fields that the server always writes, in the stored form."""
    event.setdefault("involvedObject", {})
    event.setdefault("source", {})
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(name, None)
    event.setdefault("reportingComponent", "")
    event.setdefault("reportingInstance", "")


def event_mistakes(event: Object, *, as_events_v1: bool) -> list[Cause]:
    """Checks an event in its stored form; ``events.k8s.io/v1`` writers must give more fields."""
    causes = []
    involved = event["involvedObject"].get("namespace", "")
    namespace = event["metadata"]["namespace"]
    if (involved or "default") != namespace and (involved or namespace != "kube-system"):
        field = "involvedObject.namespace"
        causes.append(invalid_value(field, involved, "does not match event.namespace"))
    if as_events_v1:
        wanted = ("eventTime", "reportingComponent", "reportingInstance", "action", "reason")
        causes += [required(_NEW_NAMES.get(name, name)) for name in wanted if not event.get(name)]
    return causes
