"""The leader's address and certificate in an annotation of its lease.

kube-scheduler's lease only names its holder. With the annotation a client that may read the lease finds the leader's
endpoints and can trust its self-signed certificate.
"""

from typing import Any, Final

import msgspec

from app.kube.errors import UNREADABLE
from app.kube.transport import Transport, path_segment
from app.wire.sanitize import decode

ANNOTATION: Final = "aiokube-scheduler.io/leader"
#: Selects the leases with the annotation.
LABEL: Final = "aiokube-scheduler.io/leader"
LABELS: Final = {LABEL: "true"}

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class Leader(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A scheduler that leads. ``certificate`` is PEM; empty if it serves without TLS."""

    #: As in the lease's holderIdentity; if that differs, the annotation is outdated.
    identity: str
    #: The URL of its endpoints; empty if it serves none, or none yet.
    server: str
    certificate: str
    scheduler_names: tuple[str, ...]
    #: Whether it has started only now, and will write ``server`` soon.
    starting: bool = False

    @property
    def host(self) -> str:
        """The host name in its identity; in a pod without the host's network, the pod's name."""
        return self.identity.rpartition("_")[0]

    def annotations(self) -> dict[str, str]:
        """The annotations of the lease."""
        return {ANNOTATION: msgspec.json.encode(self).decode()}


class LeaderLease(msgspec.Struct, frozen=True):
    """A lease with the annotation; ``leader`` is None if another process without annotation holds it."""

    namespace: str
    name: str
    holder: str
    leader: Leader | None


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None


class _Lease(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec | None = None


class _Leases(msgspec.Struct, frozen=True):
    items: list[_Lease] | None = None


_DECODER: Final[msgspec.json.Decoder[Any]] = msgspec.json.Decoder(_Leases)


async def leader_leases(transport: Transport, namespace: str) -> list[LeaderLease]:
    """The leases of this scheduler in a namespace. Raises KubeError, and what ``decode`` raises.

    Not in all: whoever may write a lease anywhere would be sent the credentials of those who look for a leader.
    """
    params = {"labelSelector": f"{LABEL}=true"}
    path = _LEASES.format(path_segment(namespace))
    answer = await transport.request("GET", path, params=params)
    return [_read(lease) for lease in decode(_DECODER, answer.body).items or ()]


def _read(lease: _Lease) -> LeaderLease:
    metadata, holder = lease.metadata, (lease.spec and lease.spec.holder_identity) or ""
    try:
        text = (metadata.annotations or {}).get(ANNOTATION, "")
        leader = msgspec.json.decode(text, type=Leader)
    except UNREADABLE:
        leader = None
    if leader is not None and leader.identity != holder:
        leader = None
    return LeaderLease(metadata.namespace, metadata.name, holder, leader)
