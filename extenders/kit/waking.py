"""Asks aiokube-scheduler to try rejected pods again, because something has become free.

::

    async with Scheduler("https://aiokube-scheduler.kube-system.svc:10259", ca=SERVICE_ACCOUNT_CA) as scheduler:
        await scheduler.wake(resource="example.com/licence")

The service account needs the verb ``post`` on the non-resource URL ``/extenders/requeue``. kube-scheduler has no such
endpoint.
"""

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
SERVICE_ACCOUNT_CA: Final = f"{_MOUNT}/ca.crt"
SERVICE_ACCOUNT_TOKEN: Final = f"{_MOUNT}/token"
_TIMEOUT: Final = aiohttp.ClientTimeout(total=10)


class Scheduler:
    """The endpoint of one scheduler."""

    def __init__(self, url: str, *, ca: str = "", token_file: str = SERVICE_ACCOUNT_TOKEN) -> None:
        """``ca``: PEM file of the authority of the scheduler's certificate; by default those of the system."""
        self._url: Final = f"{url.rstrip('/')}/extenders/requeue"
        self._token_file: Final = Path(token_file)
        context = ssl.create_default_context(cafile=ca or None)
        self._session: Final = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=context), timeout=_TIMEOUT
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def wake(
        self,
        *,
        extender: str = "",
        pods: Iterable[tuple[str, str]] | None = None,
        resource: str = "",
    ) -> int:
        """Makes the rejected pods active that match all conditions; returns how many.

        ``extender``: only pods that this extender rejected (its urlPrefix); ``pods``: only these, as (namespace, name);
        ``resource``: only pods that request it. Raises aiohttp.ClientError; 503 is a standby: ask the other replicas.
        """
        request: dict[str, Any] = {}
        if extender:
            request["extender"] = extender
        if pods is not None:
            request["pods"] = [{"namespace": namespace, "name": name} for namespace, name in pods]
        if resource:
            request["resource"] = resource
        headers = {"Authorization": f"Bearer {self._token_file.read_text().strip()}"}
        async with self._session.post(self._url, json=request, headers=headers) as answer:
            if answer.status != 200:
                text = (await answer.text())[:500]
                raise aiohttp.ClientResponseError(
                    answer.request_info, (), status=answer.status, message=text
                )
            return int((await answer.json())["woken"])
