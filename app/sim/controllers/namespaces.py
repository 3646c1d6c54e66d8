"""What every namespace has, and what its quotas are used for."""

from typing import Any, Final

from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.errors import ApiError
from app.sim.objects import is_being_deleted
from app.sim.resources.kinds import (
    CONFIG_MAPS,
    NAMESPACES,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    Kind,
)
from app.sim.resources.quotas import quota_status
from app.sim.store import StoreChange

_SETTLE_SECONDS: Final = 0.02
"""Changes within this time are counted together."""
_CONTENTS: Final[dict[Kind, dict[str, Any]]] = {
    SERVICE_ACCOUNTS: {"metadata": {"name": "default"}},
    CONFIG_MAPS: {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}},
}


class NamespaceContentsController(Controller[str]):
    """Gives each namespace its default service account and the ConfigMap with the certificate of the server, which has
    none.
    """

    def __init__(self, api: Api) -> None:
        super().__init__(
            api,
            {
                NAMESPACES: lambda change: self.enqueue(change.key[1]),
                SERVICE_ACCOUNTS: self._on_object,
                CONFIG_MAPS: self._on_object,
            },
        )

    def _on_object(self, change: StoreChange) -> None:
        if change.type == "DELETED":
            self.enqueue(change.key[0])

    def reconcile(self, key: str) -> None:
        namespace = self._api.find(NAMESPACES, "", key)
        if namespace is None or is_being_deleted(namespace.value):
            return
        for kind, value in _CONTENTS.items():
            if self._api.find(kind, key, value["metadata"]["name"]) is None:
                self._create(kind, key, value)

    def _create(self, kind: Kind, namespace: str, value: dict[str, Any]) -> None:
        try:
            self._api.create(kind, namespace, value)
        except ApiError as error:
            if error.reason != "Forbidden":  # by a quota
                raise


class ResourceQuotaController(Controller[str]):
    """Writes what a namespace's objects use of its quotas. Its keys are namespaces."""

    def __init__(self, api: Api) -> None:
        super().__init__(api, {})
        self._quotas = api.store[RESOURCE_QUOTAS.storage]

    def start(self) -> None:
        """Starts with the objects that exist. Needs a running loop."""
        self._api.store.follow(self._on_change)
        for namespace, _ in self._quotas.records:
            self.enqueue(namespace)

    def stop(self) -> None:
        """Stops, and leaves all objects as they are."""
        self._api.store.unfollow(self._on_change)
        super().stop()

    def _on_change(self, change: StoreChange) -> None:
        if self._quotas.records and change.key[0]:
            self.enqueue(change.key[0], _SETTLE_SECONDS)

    def reconcile(self, key: str) -> None:
        for record in list(self._quotas.ordered(namespace=key)):
            status = quota_status(self._api.quota_use, record)
            if status != record.value.get("status"):
                self._api.write_status(RESOURCE_QUOTAS, record.value, status)
