"""An AdmissionCheck for Kueue: a workload is admitted when the scheduler has room for all of its pods.

Kueue counts quotas, not room: what has quota may wait for a node for hours, and holds its quota meanwhile. This
controller asks the running scheduler (``POST /whatif``), with its plugins, whether all pods of a workload with reserved
quota would get a node now. Then the check is ``Ready``; if not, it is ``Retry``, with the reason: Kueue gives the quota
to others and tries again. Run it with

    python -m aiokube_scheduler.extenders.kueue --scheduler https://aiokube-scheduler.kube-system.svc:10259

and add an AdmissionCheck with ``controllerName: aiokube-scheduler.io/fits`` to a ClusterQueue (extenders/README.md).
"""

import argparse
import asyncio
import logging
import ssl
import time  # noqa: TID251 - it is a program of its own
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp

log = logging.getLogger("kueue")

CONTROLLER: Final = "aiokube-scheduler.io/fits"
_MOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_PATCH: Final = {"Content-Type": "application/json-patch+json"}
_TIMEOUT: Final = aiohttp.ClientTimeout(total=60)
_MOST_TEXT: Final = 1000

Object = dict[str, Any]


class NoAnswer(Exception):  # noqa: N818 - says what happened
    """The scheduler or the API server did not answer; it is asked again."""


class AdmissionChecks:
    """Sets the states of the checks of this controller."""

    def __init__(
        self, session: aiohttp.ClientSession, api: str, scheduler: str, version: str = "v1beta2"
    ) -> None:
        """``api`` and ``scheduler`` are URLs; ``version``: of kueue.x-k8s.io."""
        self._session: Final = session
        self._root: Final = f"{api.rstrip('/')}/apis/kueue.x-k8s.io/{version}"
        self._whatif: Final = f"{scheduler.rstrip('/')}/whatif"

    async def run(self, seconds: float) -> None:
        """Looks at all workloads, again and again."""
        while True:
            try:
                await self.once()
            except (NoAnswer, aiohttp.ClientError, TimeoutError) as error:
                log.warning("%s; trying again", error)
            await asyncio.sleep(seconds)

    async def once(self) -> None:
        """Looks at all workloads once. Raises NoAnswer, aiohttp.ClientError, TimeoutError."""
        names = set()
        for check in await self._list("admissionchecks"):
            if check["spec"].get("controllerName") == CONTROLLER:
                names.add(check["metadata"]["name"])
                await self._activate(check)
        if not names:
            return
        flavors = {each["metadata"]["name"]: each for each in await self._list("resourceflavors")}
        for workload in await self._list("workloads"):
            try:
                for number, state in _waiting(workload, names):
                    await self._decide(workload, number, state, flavors)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                log.warning("%s has an unexpected form: %r", _name(workload), error)

    async def _decide(
        self, workload: Object, number: int, state: Object, flavors: Mapping[str, Object]
    ) -> None:
        question = {"question": "fits", "objects": list(_jobs(workload, flavors)), "limit": 10}
        async with self._session.post(self._whatif, json=question) as response:
            answer = await response.json(content_type=None)
            if response.status == 422:
                message, found = f"cannot be judged: {answer['message']}", "Retry"
            elif response.status != 200:
                raise NoAnswer(f"the scheduler answers {response.status}: {answer.get('message')}")
            else:
                message, found = _told(answer)
        meta = workload["metadata"]
        path = f"namespaces/{meta['namespace']}/workloads/{meta['name']}"
        await self._set(path, number, state["name"], found, message[:_MOST_TEXT])
        log.info("%s: %s, %s", _name(workload), found, message)

    async def _set(self, path: str, number: int, name: str, state: str, message: str) -> None:
        """Changes one state, unless it has changed meanwhile."""
        place = f"/status/admissionChecks/{number}"
        value = {"name": name, "state": state, "message": message, "lastTransitionTime": _now()}
        patch: list[Object] = [
            {"op": "test", "path": f"{place}/name", "value": name},
            {"op": "test", "path": f"{place}/state", "value": "Pending"},
            {"op": "replace", "path": place, "value": value},
        ]
        await self._patch(path, patch)

    async def _activate(self, check: Object) -> None:
        status = check.get("status") or {}
        conditions = [c for c in status.get("conditions") or () if c["type"] != "Active"]
        if len(conditions) < len(status.get("conditions") or ()):
            return
        active = {"type": "Active", "status": "True", "reason": "Active", "message": CONTROLLER}
        active["lastTransitionTime"] = _now()
        value = {**status, "conditions": [*conditions, active]}
        path = f"admissionchecks/{check['metadata']['name']}"
        await self._patch(path, [{"op": "add", "path": "/status", "value": value}])

    async def _list(self, plural: str) -> list[Object]:
        async with self._session.get(f"{self._root}/{plural}") as response:
            if response.status != 200:
                raise NoAnswer(f"the API server answers {response.status} to a list of {plural}")
            found: list[Object] = (await response.json())["items"]
        return found

    async def _patch(self, path: str, patch: list[Object]) -> None:
        url = f"{self._root}/{path}/status"
        async with self._session.patch(url, json=patch, headers=_PATCH) as response:
            if response.status not in {
                200,
                404,
                409,
                422,
            }:  # the latter: it is gone, or has changed
                raise NoAnswer(f"the API server answers {response.status} to a change of {path}")


def _name(workload: Object) -> str:
    meta = workload["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def _waiting(workload: Object, names: set[str]) -> Iterator[tuple[int, Object]]:
    """The checks of these names that wait for an answer, with their place in the list."""
    status = workload.get("status") or {}
    conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
    if conditions.get("QuotaReserved") != "True" or conditions.get("Finished") == "True":
        return
    for number, state in enumerate(status.get("admissionChecks") or ()):
        if state["name"] in names and state["state"] == "Pending":
            yield number, state


def _jobs(workload: Object, flavors: Mapping[str, Object]) -> Iterator[Object]:
    """A Job for each pod set, as Kueue would let it run: with what it adds for the flavors."""
    admission = (workload.get("status") or {}).get("admission") or {}
    assigned = {each["name"]: each for each in admission.get("podSetAssignments") or ()}
    for pods in workload["spec"]["podSets"]:
        own = assigned.get(pods.get("name", "main")) or {}
        template = pods["template"]
        spec = {**template["spec"]}
        for name in sorted(set((own.get("flavors") or {}).values())):
            flavor = (flavors.get(name) or {}).get("spec") or {}
            spec["nodeSelector"] = (spec.get("nodeSelector") or {}) | (
                flavor.get("nodeLabels") or {}
            )
            added = flavor.get("tolerations") or []
            spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]
        yield {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {
                "name": f"{workload['metadata']['name']}-{pods.get('name', 'main')}",
                "namespace": workload["metadata"]["namespace"],
            },
            "spec": {
                "parallelism": own.get("count", pods.get("count", 1)),
                "template": {"metadata": template.get("metadata") or {}, "spec": spec},
            },
        }


def _told(answer: Object) -> tuple[str, str]:
    """A message, and the state of the check."""
    if answer["pending"]:
        total = answer["placed"] + answer["pending"]
        why = next((pod["message"] for pod in answer["pods"] if pod.get("reason")), "")
        return f"{answer['pending']} of {total} pods would wait: {why}", "Retry"
    return f"the scheduler has a node for each of {answer['placed']} pods", "Ready"


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _headers(token_file: Path) -> dict[str, str]:
    return {"Authorization": f"Bearer {token_file.read_text().strip()}"}


async def _main(given: argparse.Namespace) -> None:
    context = ssl.create_default_context(cafile=given.ca or None)
    if given.insecure_skip_tls_verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while True:
        # A token of a service account is renewed in its file.
        headers = _headers(Path(given.token_file))
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(
            connector=connector, headers=headers, timeout=_TIMEOUT
        ) as session:
            checks = AdmissionChecks(session, given.api, given.scheduler, given.version)
            try:
                async with asyncio.timeout(600):
                    await checks.run(given.seconds)
            except TimeoutError:
                continue


def main() -> None:
    """Runs until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", required=True, help="URL of the scheduler")
    parser.add_argument(
        "--api", default="https://kubernetes.default.svc", help="URL of the API server"
    )
    parser.add_argument("--token-file", default=f"{_MOUNT}/token")
    parser.add_argument("--ca", default="", help="PEM file with the authorities of both servers")
    parser.add_argument("--insecure-skip-tls-verify", action="store_true")
    parser.add_argument("--version", default="v1beta2", help="of kueue.x-k8s.io")
    parser.add_argument("--seconds", type=float, default=5.0, help="between two looks")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
