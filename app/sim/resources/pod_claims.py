"""The relation of a pod to its ResourceClaims (KEP-4381): names, owner, reservation."""

from collections.abc import Iterator

from app.sim.api import Api
from app.sim.objects import controller_reference, group_name, has_ended, is_being_deleted
from app.sim.resources.kinds import RESOURCE_CLAIMS
from app.sim.store import Object


def made_name(pod: Object, entry: Object) -> str | None:
    """The name of the claim that was created from a template for an entry of a pod or a group, from its status.

    An entry that is noted without a name needs no claim: its name is empty.
    """
    for status in pod["status"].get("resourceClaimStatuses", ()):
        if status["name"] == entry["name"]:
            return str(status.get("resourceClaimName", ""))
    return None


def claim_name(pod: Object, entry: Object) -> str | None:
    """The name of an entry's claim: the given one, or that of the one that was created (see ``made_name``)."""
    return entry.get("resourceClaimName") or made_name(pod, entry)


def claim_names(pod: Object) -> Iterator[str]:
    """The known names of the claims of a pod or a group: given ones, those from templates, and the one for extended
    resources."""
    for entry in pod["spec"].get("resourceClaims", ()):
        name = claim_name(pod, entry)
        if name:
            yield name
    extended = pod["status"].get("extendedResourceClaimStatus")
    if extended:
        yield extended["resourceClaimName"]


def has_claims(pod: Object) -> bool:
    """Whether a pod has claims."""
    return bool(pod["spec"].get("resourceClaims")) or "extendedResourceClaimStatus" in pod["status"]


def is_done(pod: Object) -> bool:
    """Whether no container of a pod will run any more."""
    gone_unbound = is_being_deleted(pod) and not pod["spec"].get("nodeName")
    return gone_unbound or has_ended(pod)


def owning_pod(claim: Object) -> Object | None:
    """The reference to the pod for which a claim was created."""
    owner = controller_reference(claim)
    if owner is None or (owner["apiVersion"], owner["kind"]) != ("v1", "Pod"):
        return None
    return owner


def is_reserved(claim: Object, pod: Object) -> bool:
    """Whether a claim is allocated and reserved for a pod, or for its group, of which a pod knows the name only."""
    status, uid, group = claim.get("status", {}), pod["metadata"]["uid"], group_name(pod)
    return "allocation" in status and any(
        consumer["uid"] == uid
        or (consumer["resource"] == "podgroups" and consumer["name"] == group)
        for consumer in status.get("reservedFor", ())
    )


def may_start(api: Api, pod: Object) -> bool:
    """Whether all claims of a pod exist and are reserved for it, so that a kubelet can start the pod."""
    return all(claim is not None and is_reserved(claim, pod) for _, claim in _claims(api, pod))


def missing_claim(api: Api, pod: Object) -> str:
    """The claim or template that a pod waits for before it can be scheduled; empty if all its claims exist."""
    for entry, claim in _claims(api, pod):
        if claim is None:
            source = entry.get("resourceClaimName") or entry.get("resourceClaimTemplateName", "")
            kind = "claim" if "resourceClaimName" in entry else "claim from the template"
            return f'there is no resource {kind} "{source}" for "{entry["name"]}"'
    return ""


def _claims(api: Api, pod: Object) -> Iterator[tuple[Object, Object | None]]:
    """Each entry of a pod that needs a claim, and the claim."""
    for entry in pod["spec"].get("resourceClaims", ()):
        name = claim_name(pod, entry)
        if name != "":
            record = api.find(RESOURCE_CLAIMS, pod["metadata"]["namespace"], name or "")
            yield entry, None if record is None else record.value
