"""DeviceClasses by the extended resources that they provide (KEP-5004)."""

from typing import Final

from app.model.devices import CLASS_PREFIX, DeviceClass
from app.model.requests import is_extended
from app.state.lister import Lister


def may_be_devices(resource: str) -> bool:
    """Whether a DeviceClass can provide a resource of this name."""
    return is_extended(resource) or resource.startswith(CLASS_PREFIX)


class ClassesByResource:
    """Classes by the extended resources that they provide: the one that they name, and one with the class's own name.

    If several classes name the same resource, the newest provides it; of equally old ones the first by name.
    """

    def __init__(self, lister: Lister[DeviceClass]) -> None:
        self._lister: Final = lister
        self._named: Final[dict[str, list[DeviceClass]]] = {}
        self._count = 0
        #: Grows when the class of a resource may have changed.
        self.version = 0
        for known in lister:
            self._changed(None, known)
        lister.follow(self._changed)

    def __bool__(self) -> bool:
        """Whether there is any class."""
        return self._count > 0

    def get(self, resource: str) -> DeviceClass | None:
        """The class that provides a resource."""
        if resource.startswith(CLASS_PREFIX):
            return self._lister.get(resource.removeprefix(CLASS_PREFIX))
        named = self._named.get(resource)
        return named[0] if named else None

    def _changed(self, old: DeviceClass | None, new: DeviceClass | None) -> None:
        if old is not None and old.spec.extended_resource_name:
            name = old.spec.extended_resource_name
            rivals = [rival for rival in self._named.pop(name, ()) if rival.name != old.name]
            if rivals:
                self._named[name] = rivals
        if new is not None and new.spec.extended_resource_name:
            rivals = self._named.setdefault(new.spec.extended_resource_name, [])
            rivals.append(new)
            rivals.sort(key=lambda rival: rival.name)
            rivals.sort(key=lambda rival: rival.metadata.creation_timestamp or "", reverse=True)
        self._count += (new is not None) - (old is not None)
        self.version += 1
