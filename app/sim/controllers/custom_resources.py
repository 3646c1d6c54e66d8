"""Serves the kinds that CustomResourceDefinitions define, and removes their objects with the definition."""

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.resources.custom import definition_status, kinds_of, stored_version
from app.sim.resources.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from app.sim.store import Object, StoreChange


class CustomResourceController(Controller[str]):
    """Its keys are the names of definitions.

    A definition whose kind another one defines in the same group is not served until the other one is deleted.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(api, {CUSTOM_RESOURCE_DEFINITIONS: self._on_definition})
        self._served: dict[str, tuple[Object, list[Kind]]] = {}
        """name of a definition -> the spec that is served, and its kinds."""
        self._conflicting: set[str] = set()
        """Names of definitions whose kind is defined by another one."""

    def _on_definition(self, change: StoreChange) -> None:
        name, definition = change.key[1], change.record.value
        served = self._served.get(name)
        if change.type == "DELETED":
            self._conflicting.discard(name)
            self._remove_objects(name)
            self._withdraw(name)
            self._api.store.drop(name)
            for other in sorted(self._conflicting):
                self.enqueue(other)
        else:
            if served is None or served[0] != definition["spec"]:
                self._serve(name, definition)
            self.enqueue(name)

    def _serve(self, name: str, definition: Object) -> None:
        """Serves the kinds of a definition, unless one of another definition has the same name."""
        self._withdraw(name)
        self._conflicting.discard(name)
        self._api.store.add(name)
        kinds = list(kinds_of(definition))
        own = {(kind.group, kind.kind) for kind, _ in kinds}
        if any((kind.group, kind.kind) in own for kind in self._api.kinds):
            self._conflicting.add(name)
            return
        self._convert(name, definition)
        for kind, schema in kinds:
            self._api.kinds.add(kind, schema)
        self._served[name] = definition["spec"], [kind for kind, _ in kinds]

    def _convert(self, name: str, definition: Object) -> None:
        """Brings stored objects into the version that is stored now.

        Watches end: what they show may have another form.
        """
        collection, type_ = self._api.store[name], {"kind": definition["spec"]["names"]["kind"]}
        type_ |= {"apiVersion": stored_version(definition)}
        if any(not type_.items() <= each.value.items() for each in collection.records.values()):
            collection.convert(lambda value: value | type_)
        collection.end_watches()

    def _withdraw(self, name: str) -> None:
        for kind in self._served.pop(name, ({}, []))[1]:
            self._api.kinds.remove(kind)

    def _remove_objects(self, name: str) -> None:
        for key in list(self._api.store[name].records):
            self._api.store.remove(name, key)

    def reconcile(self, key: str) -> None:
        record = self._api.find(CUSTOM_RESOURCE_DEFINITIONS, "", key)
        if record is None:
            return
        if key in self._conflicting:
            self._serve(key, record.value)
        conflicting = key in self._conflicting
        status = definition_status(record.value, self._api.timestamp(), conflicting=conflicting)
        if status != record.value.get("status"):
            self._api.write_status(CUSTOM_RESOURCE_DEFINITIONS, record.value, status)
