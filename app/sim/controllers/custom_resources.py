"""Serves the kinds that CustomResourceDefinitions define, and removes their objects with the definition."""

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.resources.custom import definition_status, kinds_of
from app.sim.resources.kinds import CUSTOM_RESOURCE_DEFINITIONS, Kind
from app.sim.store import Object, StoreChange


class CustomResourceController(Controller[str]):
    """Its keys are the names of definitions."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, {CUSTOM_RESOURCE_DEFINITIONS: self._on_definition})
        self._served: dict[str, tuple[Object, list[Kind]]] = {}
        """name of a definition -> the spec that is served, and its kinds."""

    def _on_definition(self, change: StoreChange) -> None:
        name, definition = change.key[1], change.record.value
        served = self._served.get(name)
        if change.type == "DELETED":
            self._remove_objects(name)
            self._withdraw(name)
            self._api.store.drop(name)
        elif served is None or served[0] != definition["spec"]:
            self._withdraw(name)
            self._api.store.add(name)
            kinds = list(kinds_of(definition))
            for kind, schema in kinds:
                self._api.kinds.add(kind, schema)
            self._served[name] = definition["spec"], [kind for kind, _ in kinds]
            self.enqueue(name)

    def _withdraw(self, name: str) -> None:
        for kind in self._served.pop(name, ({}, []))[1]:
            self._api.kinds.remove(kind)

    def _remove_objects(self, name: str) -> None:
        for key in list(self._api.store[name].records):
            self._api.store.remove(name, key)

    def reconcile(self, key: str) -> None:
        record = self._api.find(CUSTOM_RESOURCE_DEFINITIONS, "", key)
        if record is None or record.value.get("status"):
            return
        value = record.value | {"metadata": dict(record.value["metadata"])}
        value["status"] = definition_status(record.value, self._api.timestamp())
        self._api.write(CUSTOM_RESOURCE_DEFINITIONS, value)
