"""The volume plugins, one node at a time, straight from the rules (docs/spec/plugins/README.md).

Everything is looked up when it is asked for, in plain loops. A verdict is (code, reasons) or None.
"""

from app.model.csi_migration import (
    TranslationError,
    inline_handle,
    migrated,
    plugin_of,
    volume_handle,
)
from app.model.quantity import parse
from app.model.selectors import SelectorError, compile_selector
from app.model.status import Code
from tests.core.plugins.twins.selectors import (
    UnreadableError,
    field_holds,
    holds,
)

U, UU, ERROR = Code.Unschedulable, Code.UnschedulableAndUnresolvable, Code.Error
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
SELECTED = "volume.kubernetes.io/selected-node"
COMPLETED = "pv.kubernetes.io/bind-completed"


class Refused(Exception):  # noqa: N818 - a verdict, not a fault
    """A verdict on the pod as a whole."""

    def __init__(self, code, *reasons):
        super().__init__(code, reasons)
        self.verdict = (code, reasons)


def judged(twin, *args):
    """(what the twin made of a pod, None), or (None, the verdict on the pod as a whole)."""
    try:
        return twin(*args), None
    except Refused as refused:
        return None, refused.verdict


def missing(kind, name):
    return f'{kind} "{name}" not found'


def name_of(pod, volume):
    if volume.persistent_volume_claim is not None:
        return volume.persistent_volume_claim.claim_name
    return f"{pod.name}-{volume.name}" if volume.ephemeral is not None else None


def owned(pod, claim):
    owners = claim.metadata.owner_references or ()
    return any(o.controller and o.uid == pod.uid for o in owners)


def not_owned(pod, claim):
    return (
        f"PVC {claim.namespace}/{claim.name} was not created for pod "
        f"{pod.namespace}/{pod.name} (pod is not owner)"
    )


def class_of(claim):
    if BETA_CLASS in claim.annotations:
        return claim.annotations[BETA_CLASS]
    return claim.spec.storage_class_name or ""


# ---------------------------------------------------------------- VolumeRestrictions


def restricted(volume):
    sources = (volume.gce_persistent_disk, volume.aws_elastic_block_store, volume.rbd, volume.iscsi)
    return any(source is not None for source in sources)


def volumes_clash(one, two):
    if one.gce_persistent_disk and two.gce_persistent_disk:
        a, b = one.gce_persistent_disk, two.gce_persistent_disk
        return a.pd_name == b.pd_name and not (a.read_only and b.read_only)
    if one.aws_elastic_block_store and two.aws_elastic_block_store:
        return one.aws_elastic_block_store.volume_id == two.aws_elastic_block_store.volume_id
    if one.iscsi and two.iscsi:
        return one.iscsi.iqn == two.iscsi.iqn and not (one.iscsi.read_only and two.iscsi.read_only)
    if one.rbd and two.rbd:
        a, b = one.rbd, two.rbd
        same = (a.pool, a.image) == (b.pool, b.image)
        shared = set(a.monitors or ()) & set(b.monitors or ())
        return bool(shared) and same and not (a.read_only and b.read_only)
    return False


def pods_clash(pod, other):
    mine, theirs = pod.spec.volumes or (), other.spec.volumes or ()
    return any(volumes_clash(one, two) for one in mine for two in theirs)


class Restrictions:
    """``everyone``: all pods on nodes that exist."""

    def __init__(self, cluster, everyone, pod):
        self.pod = pod
        self.exclusive = set()
        for name in pod.template.claim_names:
            claim = cluster.claims.get(name, pod.namespace)
            if claim is None:
                raise Refused(UU, missing("persistentvolumeclaim", name))
            if "ReadWriteOncePod" in claim.spec.access_modes:
                self.exclusive.add(name)
        used = {
            (other.namespace, name) for other in everyone for name in other.template.claim_names
        }
        self.conflicts = sum((pod.namespace, name) in used for name in self.exclusive)
        self.skip = not self.conflicts and not any(map(restricted, pod.spec.volumes or ()))

    def filter(self, scene, before):
        """``before``: the node's pods without anything imagined."""
        if any(pods_clash(self.pod, other) for other in scene.pods):
            return U, ("node(s) had no available disk",)
        conflicts = self.conflicts
        for sign, pods, others in ((1, scene.pods, before), (-1, before, scene.pods)):
            for other in pods:
                if other not in others:
                    conflicts += sign * sum(n in self.exclusive for n in other.template.claim_names)
        if conflicts > 0:
            return U, (
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
                "already in-use by another pod",
            )
        return None


# ---------------------------------------------------------------- NodeVolumeLimits


def limits_skip(pod):
    return not any(
        name_of(pod, v) is not None or plugin_of(v) is not None for v in pod.spec.volumes or ()
    )


def driver_and_handle(cluster, claim):
    volume = cluster.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        if volume.spec.csi is not None:
            return volume.spec.csi.driver, volume.spec.csi.volume_handle
        plugin = plugin_of(volume.spec)
        if plugin is None:
            return "", ""
        try:
            return plugin.driver, volume_handle(volume)
        except TranslationError:
            return "", ""
    kind = cluster.storage_classes.get(class_of(claim)) if class_of(claim) else None
    if kind is None or kind.provisioner in {
        "kubernetes.io/vsphere-volume",
        "kubernetes.io/azure-file",
    }:
        return "", ""
    driver = {"kubernetes.io/aws-ebs": "ebs.csi.aws.com"}.get(kind.provisioner, kind.provisioner)
    return driver, f"to be made for {claim.namespace}/{claim.name}"


def counted(cluster, pod, csi_node, *, new):
    """{(driver, handle)} of a pod. Raises Refused for a ``new`` one; what is wrong with other pods does not count."""
    found = set()
    for volume in pod.spec.volumes or ():
        name = name_of(pod, volume)
        if name is None:
            plugin = plugin_of(volume)
            if plugin is not None and csi_node is not None:
                try:
                    found.add((plugin.driver, inline_handle(volume)))
                except TranslationError as error:
                    if not new:
                        continue
                    text = f"converting volume({volume.name}) from inline to csi: {error}"
                    raise Refused(ERROR, text) from error
            continue
        claim = cluster.claims.get(name, pod.namespace)
        if claim is None:
            if new:
                where = f"looking up PVC {pod.namespace}/{name}: "
                raise Refused(UU, where + missing("persistentvolumeclaim", name))
            continue
        if new and volume.ephemeral is not None and not owned(pod, claim):
            raise Refused(ERROR, not_owned(pod, claim))
        driver, handle = driver_and_handle(cluster, claim)
        if driver and handle:
            found.add((driver, handle))
    return found


def limits_filter(cluster, pod, scene):
    csi_node = cluster.csi_nodes.get(scene.node.name)
    try:
        new = counted(cluster, pod, csi_node, new=True)
        limits = {
            d.name: d.allocatable.count
            for d in (csi_node.spec.drivers if csi_node else ())
            if d.allocatable is not None and d.allocatable.count is not None
        }
        if not new or not limits:
            return None
        attached = set()
        for other in scene.pods:
            attached |= counted(cluster, other, csi_node, new=False)
    except Refused as refused:
        return refused.verdict
    new -= attached
    held = set()
    for attachment in cluster.attachments:
        spec = attachment.spec
        volume = cluster.volumes.get(spec.source.persistent_volume_name or "")
        if spec.node_name == scene.node.name and spec.attacher and volume and volume.spec.csi:
            held.add((spec.attacher, volume.spec.csi.volume_handle))
    for driver in {d for d, _ in new}:
        count = sum(d == driver for d, _ in attached | held) + sum(d == driver for d, _ in new)
        if driver in limits and count > limits[driver]:
            return U, ("node(s) exceed max volume count",)
    return None


# ---------------------------------------------------------------- VolumeZone

ZONE_LABELS = (
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
)


def zone_demands(cluster, pod):
    """[(key, values)]. Raises Refused."""
    demands = []
    for name in pod.template.claim_names:
        claim = cluster.claims.get(name, pod.namespace)
        if claim is None:
            raise Refused(UU, missing("persistentvolumeclaim", name))
        if claim.spec.volume_name:
            volume = cluster.volumes.get(claim.spec.volume_name)
            if volume is None:
                raise Refused(UU, missing("persistentvolume", claim.spec.volume_name))
            for key in ZONE_LABELS:
                if key in volume.labels:
                    values = [part.strip() for part in volume.labels[key].split("__")]
                    if all(values):
                        demands.append((key, values))
            continue
        if not class_of(claim):
            raise Refused(UU, "PersistentVolumeClaim had no pv name and storageClass name")
        kind = cluster.storage_classes.get(class_of(claim))
        if kind is None:
            raise Refused(UU, missing("storageclass.storage.k8s.io", class_of(claim)))
        if kind.volume_binding_mode is None:
            raise Refused(UU, f'VolumeBindingMode not set for StorageClass "{kind.name}"')
        if kind.volume_binding_mode != "WaitForFirstConsumer":
            raise Refused(UU, "PersistentVolume had no name")
    return demands


def zone_filter(demands, scene):
    labels = scene.node.labels
    if not any(key in labels for key in ZONE_LABELS):
        return None
    for key, values in demands:
        have = labels.get(key)
        if have is None:
            have = labels.get(
                key.replace("failure-domain.beta.kubernetes.io", "topology.kubernetes.io")
            )
        if have not in values:
            return UU, ("node(s) had no available volume zone",)
    return None


# ---------------------------------------------------------------- VolumeBinding

NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
BIND_CONFLICT = "node(s) didn't find available persistent volumes to bind"
NO_SPACE = "node(s) did not have enough free storage"
NO_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"


def reachable(volume, node):
    affinity = volume.spec.node_affinity
    if affinity is None or affinity.required is None:
        return True
    for term in affinity.required.node_selector_terms or ():
        if not term.match_expressions and not term.match_fields:
            continue
        try:
            for requirement in term.match_fields or ():
                field_holds(requirement, node)
            found = [holds(r, node.labels) for r in term.match_expressions or ()]
            if all(found):
                return True
        except UnreadableError:
            continue
    return False


def as_the_node_sees(cluster, volume, node):
    plugin, csi_node = plugin_of(volume.spec), cluster.csi_nodes.get(node.name)
    if plugin is None or csi_node is None:
        return volume
    handed = csi_node.annotations.get("storage.alpha.kubernetes.io/migrated-plugins", "")
    return migrated(volume) if plugin.name in handed.split(",") else volume


class Claims:
    """A pod's claims, sorted. Raises Refused."""

    def __init__(self, cluster, pod):
        self.cluster = cluster
        self.bound, self.delayed = [], []
        self.skip = all(name_of(pod, v) is None for v in pod.spec.volumes or ())
        claims = [
            self._check(pod, v) for v in pod.spec.volumes or () if name_of(pod, v) is not None
        ]
        immediate = False
        for claim in claims:
            kind = cluster.storage_classes.get(class_of(claim))
            if claim.spec.volume_name and COMPLETED in claim.annotations:
                self.bound.append(claim)
            elif kind is not None and kind.volume_binding_mode is None:
                raise Refused(ERROR, f'VolumeBindingMode not set for StorageClass "{kind.name}"')
            elif (
                kind is not None
                and kind.volume_binding_mode == "WaitForFirstConsumer"
                and not claim.spec.volume_name
            ):
                self.delayed.append(claim)
            else:
                immediate = True
        if immediate:
            raise Refused(UU, "pod has unbound immediate PersistentVolumeClaims")

    def _check(self, pod, volume):
        name = name_of(pod, volume)
        claim = self.cluster.claims.get(name, pod.namespace)
        if claim is None:
            text = missing("persistentvolumeclaim", name)
            if volume.ephemeral is not None:
                controller = "waiting for ephemeral volume controller to create the "
                text = f'{controller}persistentvolumeclaim "{name}"'
            raise Refused(UU, text)
        if claim.status.phase == "Lost":
            lost = f'bound to non-existent persistentvolume "{claim.spec.volume_name}"'
            raise Refused(UU, f'persistentvolumeclaim "{name}" {lost}')
        if claim.metadata.deletion_timestamp is not None:
            raise Refused(UU, f'persistentvolumeclaim "{name}" is being deleted')
        if volume.ephemeral is not None and not owned(pod, claim):
            raise Refused(UU, not_owned(pod, claim))
        return claim


def size_of(claim):
    requests = claim.spec.resources.requests if claim.spec.resources else {}
    return parse(requests["storage"]) if "storage" in requests else None


def capacity_of(volume):
    return parse((volume.spec.capacity or {}).get("storage", 0))


def volume_class(volume):
    return volume.annotations.get(BETA_CLASS, volume.spec.storage_class_name)


def is_for(volume, claim):
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and (reference.namespace, reference.name) == (claim.namespace, claim.name)
        and reference.uid in ("", claim.uid)
    )


def pick(cluster, claim, node, chosen):
    """The volume for a claim on a node, or None."""
    best = None
    selector = None if claim.spec.selector is None else compile_selector(claim.spec.selector)
    volumes = [v for v in cluster.volumes if volume_class(v) == class_of(claim)]
    for volume in sorted(volumes, key=lambda v: (capacity_of(v), v.name)):
        if volume.name in chosen or (volume.spec.claim_ref and not is_for(volume, claim)):
            continue
        if capacity_of(volume) < (size_of(claim) or 0):
            continue
        if (volume.spec.volume_mode or "Filesystem") != (claim.spec.volume_mode or "Filesystem"):
            continue
        classes = (
            volume.spec.volume_attributes_class_name,
            claim.spec.volume_attributes_class_name,
        )
        if (classes[0] or "") != (classes[1] or ""):
            continue
        if volume.metadata.deletion_timestamp is not None:
            continue
        if is_for(volume, claim):
            return volume if reachable(volume, node) else None
        if volume.status.phase != "Available":
            continue
        if selector is not None and not selector.matches(volume.labels):
            continue
        if not reachable(volume, node):
            continue
        if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
            continue
        if best is None or capacity_of(volume) < capacity_of(best):
            best = volume
    return best


def topology_allows(kind, node):
    if not kind.allowed_topologies:
        return True
    return any(
        term.match_label_expressions
        and all(node.labels.get(e.key) in e.values for e in term.match_label_expressions)
        for term in kind.allowed_topologies
    )


def has_room(cluster, claim, kind, node):
    size, driver = size_of(claim), cluster.csi_drivers.get(kind.provisioner)
    if size is None or driver is None or not driver.spec.storage_capacity:
        return True
    for capacity in cluster.csi_capacities:
        limit = capacity.maximum_volume_size or capacity.capacity
        if capacity.storage_class_name != kind.name or limit is None or parse(limit) < size:
            continue
        if capacity.node_topology is None:
            continue
        expressions = capacity.node_topology.match_expressions or ()
        if any(r.operator in {"Gt", "Lt"} for r in expressions):
            continue
        try:
            if compile_selector(capacity.node_topology).matches(node.labels):
                return True
        except SelectorError:
            continue
    return False


class Found:
    """What VolumeBinding makes of one node: ``verdict``, and what would be bound and made."""

    def __init__(self, claims, node):
        self.cluster, self.node = claims.cluster, node
        self.bindings, self.provisions = [], []
        try:
            reasons = self._reasons(claims)
        except Refused as refused:
            self.verdict = refused.verdict
        else:
            ordered = [
                r for r in (NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, NO_VOLUME) if r in reasons
            ]
            self.verdict = (UU, tuple(ordered)) if ordered else None

    def _reasons(self, claims):
        reasons = self._bound(claims.bound)
        selected = [c for c in claims.delayed if SELECTED in c.annotations]
        if any(c.annotations[SELECTED] != self.node.name for c in selected):
            return reasons | {BIND_CONFLICT}
        others = [c for c in claims.delayed if SELECTED not in c.annotations]
        to_make = selected + self._match(others)
        return reasons | self._make(to_make)

    def _bound(self, claims):
        for claim in claims:
            volume = self.cluster.volumes.get(claim.spec.volume_name)
            if volume is None:
                return {NO_VOLUME}
            try:
                seen = as_the_node_sees(self.cluster, volume, self.node)
            except TranslationError as error:
                raise Refused(ERROR, f"could not translate pv: {error}") from error
            if not reachable(seen, self.node):
                return {NODE_CONFLICT}
        return set()

    def _match(self, claims):
        chosen, rest = set(), []
        for claim in sorted(claims, key=lambda c: size_of(c) or 0):
            try:
                volume = pick(self.cluster, claim, self.node, chosen)
            except SelectorError as error:
                text = "error creating internal label selector for claim: "
                raise Refused(ERROR, f"{text}{claim.namespace}/{claim.name}: {error}") from error
            if volume is None:
                rest.append(claim)
            else:
                chosen.add(volume.name)
                self.bindings.append((volume.name, claim.name))
        return rest

    def _make(self, claims):
        for claim in claims:
            kind = self.cluster.storage_classes.get(class_of(claim))
            if kind.provisioner in {"", "kubernetes.io/no-provisioner"}:
                return {BIND_CONFLICT}
            if not topology_allows(kind, self.node):
                return {BIND_CONFLICT}
            if not has_room(self.cluster, claim, kind, self.node):
                return {NO_SPACE}
            self.provisions.append(claim.name)
        return set()
