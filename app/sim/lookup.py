"""What rules of kinds may know of other objects: the store, the kinds, and the time. Api adds the verbs."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from app.model.timestamps import format_time
from app.sim.errors import not_found
from app.sim.features import NO_FEATURES, ServedFeatures
from app.sim.resources.kinds import (
    NAMESPACES,
    PRIORITY_CLASSES,
    RUNTIME_CLASSES,
    STORAGE_CLASSES,
    Kind,
    KindTable,
    is_stored,
)
from app.sim.store import Object, ObjectStore, Record


class Lookup:
    """The objects of the cluster, for reading. ``now`` returns the wall clock's time in seconds."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        history_limit: int = 10_000,
        features: ServedFeatures = NO_FEATURES,
    ) -> None:
        self.features: Final = features
        self.kinds: Final = KindTable(features.versions, newer=features.is_newer)
        resources = {kind.storage for kind in self.kinds if is_stored(kind)}
        self.store: Final = ObjectStore(resources, history_limit=history_limit)
        self.now: Final = now

    def timestamp(self) -> str:
        """The present time, as RFC 3339."""
        return format_time(self.now())

    def priority_classes(self) -> Iterable[Object]:
        """All PriorityClass objects."""
        return (record.value for record in self.store[PRIORITY_CLASSES.storage].records.values())

    def runtime_class(self, name: str) -> Object | None:
        """The RuntimeClass of this name, if there is one."""
        record = self.find(RUNTIME_CLASSES, "", name)
        return None if record is None else record.value

    def storage_classes(self) -> Iterable[Object]:
        """All StorageClass objects."""
        return (record.value for record in self.store[STORAGE_CLASSES.storage].records.values())

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """The labels of a namespace."""
        labels: Mapping[str, str] = self.get(NAMESPACES, "", name).value["metadata"]["labels"]
        return labels

    def find(self, kind: Kind, namespace: str, name: str) -> Record | None:
        return self.store.find(kind.storage, (namespace, name))

    def get(self, kind: Kind, namespace: str, name: str) -> Record:
        """Returns an object. Raises 404."""
        record = self.find(kind, namespace, name)
        if record is None:
            raise not_found(kind, name)
        return record
