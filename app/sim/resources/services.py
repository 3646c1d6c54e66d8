"""Services get addresses and ports as in a cluster, although nothing listens there."""

from typing import Final
from zlib import crc32

from app.sim.lookup import Lookup
from app.sim.resources.strategy import KindStrategy
from app.sim.store import Object

_CLUSTER_NETWORK: Final = (10 << 24) | (96 << 16)
_CLUSTER_ADDRESSES: Final = 1 << 16
_BALANCER_NETWORK: Final = (198 << 24) | (18 << 16)
"""198.18.0.0/15, which is for tests."""
_FIRST_NODE_PORT: Final = 30_000
_NODE_PORTS: Final = 2_768


class ServiceStrategy(KindStrategy):
    """Allocates cluster addresses and node ports. A load balancer has its address at once."""

    def prepare_for_create(self, value: Object, api: Lookup) -> None:
        _allocate(value, {}, api)

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:
        super().prepare_for_update(value, old, api)
        _allocate(value, old.get("spec") or {}, api)


def _allocate(service: Object, old: Object, api: Lookup) -> None:
    spec, kind = service["spec"], service["spec"].get("type", "ClusterIP")
    if kind == "ExternalName":
        return
    others = [record.value["spec"] for record in api.store["services"].records.values()]
    seed = service["metadata"].get("uid", "")
    if not spec.get("clusterIP"):
        taken = {each.get("clusterIP") for each in others}
        spec["clusterIP"] = old.get("clusterIP") or _address(_CLUSTER_NETWORK, seed, taken)
    spec["clusterIPs"] = [spec["clusterIP"]]
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    if kind in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
        _allocate_ports(
            spec, old, {p.get("nodePort") for each in others for p in each.get("ports", ())}
        )
    if kind == "LoadBalancer":
        address = _address(_BALANCER_NETWORK, seed, ())
        known = service.get("status", {}).get("loadBalancer", {}).get("ingress")
        ingress = known or [{"ip": address, "ipMode": "VIP"}]
        service["status"] = {"loadBalancer": {"ingress": ingress}}


def _address(network: int, seed: str, taken: "set[str | None] | tuple[str, ...]") -> str:
    number = crc32(seed.encode())
    for step in range(_CLUSTER_ADDRESSES):
        address = network | (number + step) % (_CLUSTER_ADDRESSES - 2) + 1
        text = ".".join(str(byte) for byte in address.to_bytes(4, "big"))
        if text not in taken:
            return text
    return "None"


def _allocate_ports(spec: Object, old: Object, taken: set[int | None]) -> None:
    known = {port.get("port"): port.get("nodePort") for port in old.get("ports", ())}
    for port in spec.get("ports", ()):
        if not port.get("nodePort"):
            free = (
                p for p in range(_FIRST_NODE_PORT, _FIRST_NODE_PORT + _NODE_PORTS) if p not in taken
            )
            port["nodePort"] = known.get(port.get("port")) or next(free, None)
        taken.add(port["nodePort"])
