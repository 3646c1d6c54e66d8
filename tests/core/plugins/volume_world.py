"""Random clusters full of volumes, for comparing the volume plugins with their scalar twins."""

import random
from collections.abc import Iterator

import msgspec
import numpy as np

from app.framework.interface import Handle
from app.model.objects import (
    CSI,
    ISCSI,
    RBD,
    AWSElasticBlockStore,
    AzureDisk,
    ClaimSource,
    EphemeralSource,
    GCEPersistentDisk,
    Node,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    OwnerReference,
    PodSpec,
    ResourceRequirements,
    Volume,
)
from app.model.pod import Pod, make_pod
from app.model.selectors import LabelSelector, Requirement
from app.model.storage import (
    CSIDriver,
    CSIDriverSpec,
    CSINode,
    CSINodeDriver,
    CSINodeSpec,
    CSIStorageCapacity,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    PhaseStatus,
    StorageClass,
    TopologySelectorRequirement,
    TopologySelectorTerm,
    VolumeAttachment,
    VolumeAttachmentSource,
    VolumeAttachmentSpec,
    VolumeNodeAffinity,
    VolumeNodeResources,
)
from app.state.cluster import Cluster
from app.state.table import NodeTable
from app.state.view import DryRunView, View
from tests.core.framework.worlds import Scene, Seen

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
BETA_REGION = "failure-domain.beta.kubernetes.io/region"
HOST = "kubernetes.io/hostname"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"
EBS, GCE = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"
MIGRATED = "storage.alpha.kubernetes.io/migrated-plugins"
COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED = "volume.kubernetes.io/selected-node"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
WAIT = "WaitForFirstConsumer"
DRIVERS = ("csi.a", "csi.b", "ebs.csi.aws.com")
ZONES = ("z1", "z2", "z3")


# ---------------------------------------------------------------- builders


def make_node(name, **labels):
    """A node with a hostname; ``zone=`` and ``region=`` are spelled out."""
    spelled = {"zone": ZONE, "region": REGION}
    labels = {spelled.get(key, key): value for key, value in labels.items()}
    return Node(metadata=ObjectMeta(name=name, labels={HOST: name, **labels}))


def claim_volume(name):
    """A pod's volume that names a claim."""
    return Volume(name=f"v-{name}", persistent_volume_claim=ClaimSource(name))


def make_pod_with(*volumes, **fields):
    """A pod with volumes; a text stands for a claim's name."""
    spelled = tuple(claim_volume(v) if isinstance(v, str) else v for v in volumes)
    fields = {"namespace": "ns", "name": "p", "uid": "u-p", **fields}
    return make_pod(PodSpec(volumes=spelled or None), **fields)


def within(key, *values):
    """A node selector of one expression."""
    return NodeSelector((NodeSelectorTerm((Requirement(key, "In", values),)),))


def make_claim(name, *, namespace="ns", version="1", size="1Gi", storage_class=None, volume="",
               bound=False, phase="", annotations=None, owner=None, modes=("ReadWriteOnce",),
               deleted=False, **spec):  # fmt: skip
    """A claim; ``bound`` says that its binding is finished."""
    annotations = {**(annotations or {}), **({COMPLETED: "yes"} if bound else {})}
    requests = None if size is None else ResourceRequirements(requests={"storage": size})
    owners = None if owner is None else (OwnerReference(kind="Pod", uid=owner, controller=True),)
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name, namespace=namespace, uid=f"uid-{name}", resource_version=version,
            annotations=annotations or None, owner_references=owners,
            deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=modes, resources=requests, volume_name=volume,
            storage_class_name=storage_class, **spec,
        ),
        status=PhaseStatus(phase),
    )  # fmt: skip


def make_volume(name, *, version="1", size="1Gi", storage_class="", affinity=None, claim=None,
                claim_uid=None, phase="Available", labels=None, annotations=None, deleted=False,
                modes=("ReadWriteOnce",), **spec):  # fmt: skip
    """A PersistentVolume; ``claim`` is the (namespace, name) of its claimRef."""
    reference = None
    if claim is not None:
        uid = f"uid-{claim[1]}" if claim_uid is None else claim_uid
        reference = ObjectReference("PersistentVolumeClaim", claim[0], claim[1], uid)
    return PersistentVolume(
        metadata=ObjectMeta(
            name=name, uid=f"uid-{name}", resource_version=version, labels=labels,
            annotations=annotations,
            deletion_timestamp="2026-01-01T00:00:00Z" if deleted else None,
        ),
        spec=PersistentVolumeSpec(
            capacity={"storage": size} if size else None, access_modes=modes,
            storage_class_name=storage_class, claim_ref=reference,
            node_affinity=None if affinity is None else VolumeNodeAffinity(affinity), **spec,
        ),
        status=PhaseStatus(phase),
    )  # fmt: skip


def make_class(name, provisioner="csi.a", mode=WAIT, *topologies):
    """A storage class; topologies are {key: values}."""
    terms = tuple(
        TopologySelectorTerm(tuple(TopologySelectorRequirement(k, v) for k, v in t.items()))
        for t in topologies
    )
    return StorageClass(
        metadata=ObjectMeta(name=name),
        provisioner=provisioner,
        volume_binding_mode=mode,
        allowed_topologies=terms or None,
    )


def make_csi_node(name, migrated="", **counts):
    """A CSINode; drivers are ``csi_a=3``, None for no limit."""
    drivers = tuple(
        CSINodeDriver(driver.replace("_", "."), VolumeNodeResources(count))
        for driver, count in counts.items()
    )
    annotations = {MIGRATED: migrated} if migrated else None
    return CSINode(
        metadata=ObjectMeta(name=name, annotations=annotations), spec=CSINodeSpec(drivers)
    )


def make_capacity(name, storage_class, capacity, topology, maximum=None):
    """A CSIStorageCapacity."""
    return CSIStorageCapacity(
        metadata=ObjectMeta(name=name, namespace="ns"),
        storage_class_name=storage_class,
        capacity=capacity,
        maximum_volume_size=maximum,
        node_topology=topology,
    )


def make_driver(name, storage_capacity=None):
    """A CSIDriver."""
    return CSIDriver(
        metadata=ObjectMeta(name=name), spec=CSIDriverSpec(storage_capacity=storage_capacity)
    )


def make_attachment(name, node_name, volume, attacher="csi.a"):
    """A VolumeAttachment."""
    return VolumeAttachment(
        metadata=ObjectMeta(name=name),
        spec=VolumeAttachmentSpec(attacher, node_name, VolumeAttachmentSource(volume)),
    )


def newer(obj, **metadata):
    """The object with its next resource version."""
    version = str(int(obj.resource_version or 0) + 1)
    changed = msgspec.structs.replace(obj.metadata, resource_version=version, **metadata)
    return msgspec.structs.replace(obj, metadata=changed)


class Bench:
    """A table and a cluster to fill by hand."""

    def __init__(self, *objects):
        self.table = NodeTable()
        self.cluster = Cluster()
        self.put(*objects)

    @property
    def handle(self):
        """What plugins are constructed with."""
        return Handle(self.table, self.cluster, "default-scheduler")

    def put(self, *objects):
        """Adds objects, or takes over their new versions."""
        for obj in objects:
            if isinstance(obj, Node):
                self.table.set_node(obj)
            elif isinstance(obj, Pod):
                self.table.add_pod(obj)
            else:
                self.cluster.lister(type(obj)).store(obj)

    def gone(self, *objects):
        """Removes objects."""
        for obj in objects:
            self.cluster.lister(type(obj)).remove(obj)

    def view(self, *names):
        """The view of some nodes, of all rows without names."""
        if not names:
            return View.everything(self.table)
        return View(self.table, np.array([self.table.row_of[name] for name in names], np.intp))


# ---------------------------------------------------------------- random clusters


class VolumeWorld(Bench):
    """A random cluster, as objects and as a table and listers that went through changes."""

    def __init__(self, seed, nodes=12):
        super().__init__()
        self.rng = random.Random(seed)
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, list[Pod]] = {}
        self._serial = 0
        for number in range(nodes):
            self.set_node(f"n{number}")
        self._add_classes()
        for _ in range(4):
            self.set_capacity()
        for _ in range(3 * nodes):
            self.add_volume()
        for _ in range(4 * nodes):
            self.add_claim()
        for _ in range(nodes):
            self.add_attachment()
        for _ in range(2 * nodes):
            self.add_pod(self.random_pod(), self.rng.choice([*self.nodes, "ghost"]))

    def serial(self, prefix):
        """A name that nothing has yet."""
        self._serial += 1
        return f"{prefix}{self._serial}"

    def set_node(self, name):
        """Adds or changes a node and perhaps its CSINode."""
        rng, labels = self.rng, {HOST: name}
        for key, values in (
            (ZONE, ZONES), (BETA_ZONE, ZONES), (REGION, ("r1", "r2")), (BETA_REGION, ("r1", "r2")),
            (EBS_ZONE, ZONES), ("disk", ("ssd", "hdd")),
        ):  # fmt: skip
            if rng.random() < 0.45:
                labels[key] = rng.choice(values)
        self.nodes[name] = Node(metadata=ObjectMeta(name=name, labels=labels))
        self.put(self.nodes[name])
        self.set_csi_node(name)

    def set_csi_node(self, name):
        """Adds, changes or removes a CSINode."""
        rng = self.rng
        limits = {
            driver.replace(".", "_"): rng.choice((None, 0, 1, 2, 3, 4))
            for driver in DRIVERS
            if rng.random() < 0.6
        }
        migrated = rng.choice(("", EBS, f"{GCE},{EBS}"))
        node = make_csi_node(name, migrated, **limits)
        if rng.random() < 0.2:
            self.gone(node)
        else:
            self.put(node)

    def _add_classes(self):
        self.put(
            make_class("imm", "csi.a", "Immediate"),
            make_class("local", "kubernetes.io/no-provisioner"),
            make_class("dyn", "csi.a"),
            make_class("topo", "csi.b", WAIT, {ZONE: ("z1", "z2")}, {"disk": ("ssd",), ZONE: ZONES}, {}),
            make_class("cap", "csi.cap"),
            make_class("ebs", EBS),
            make_class("vsphere", "kubernetes.io/vsphere-volume"),
            make_class("mute", "csi.a", None),
            make_driver("csi.cap", True),
            make_driver("csi.a", False),
        )  # fmt: skip

    def set_capacity(self):
        """Adds a CSIStorageCapacity, or changes one."""
        rng = self.rng
        topology = rng.choice((
            None,
            LabelSelector(),
            LabelSelector(match_labels={ZONE: rng.choice(ZONES)}),
            LabelSelector(match_expressions=(Requirement(ZONE, "In", ("z1", "z3", "z1")),)),
            LabelSelector(match_expressions=(Requirement("disk", "NotIn", ("hdd",)),)),
            LabelSelector({HOST: f"n{rng.randint(0, 9)}"}, (Requirement("disk", "Exists"),)),
            LabelSelector(match_expressions=(Requirement(ZONE, "Gt", ("1",)),)),
            LabelSelector(match_expressions=(Requirement(ZONE, "In"),)),
        ))  # fmt: skip
        capacity = rng.choice((None, "1Gi", "3Gi", "8Gi"))
        maximum = rng.choice((None, None, "2Gi", "9Gi"))
        name = f"capacity-{rng.randint(0, 9)}"
        self.put(
            make_capacity(name, rng.choice(("cap", "cap", "dyn")), capacity, topology, maximum)
        )

    def random_affinity(self):
        """A volume's node selector in its usual and its odd forms."""
        rng = self.rng
        host = f"n{rng.randint(0, len(self.nodes))}"
        return rng.choice((
            None, None,
            within(HOST, host), within(HOST, host, host, "n1"),
            within(ZONE, rng.choice(ZONES)), within(BETA_ZONE, "z1", "z2"),
            NodeSelector((NodeSelectorTerm((Requirement(ZONE, "In", ("z1",)), Requirement("disk", "Exists"))),)),
            NodeSelector((NodeSelectorTerm((Requirement("disk", "NotIn", ("hdd",)),)), NodeSelectorTerm())),
            NodeSelector((NodeSelectorTerm((Requirement(ZONE, "In", ("z1", "not valid!")),)),)),
            NodeSelector((
                NodeSelectorTerm((Requirement(HOST, "In", (host,)),), (Requirement("metadata.name", "In", ("x",)),)),
            )),
            NodeSelector((NodeSelectorTerm(None, (Requirement("metadata.name", "In", ("x",)),)),)),
            NodeSelector((NodeSelectorTerm(None, (Requirement("metadata.name", "In", ("x", "y")),)),)),
            NodeSelector(()),
        ))  # fmt: skip

    def random_source(self, name):
        """Where a volume's bytes are."""
        return self.rng.choice((
            {}, {"csi": CSI(self.rng.choice(DRIVERS), f"h-{name}")}, {"csi": CSI("csi.a", "shared")},
            {"csi": CSI("csi.a", "")},
            {"aws_elastic_block_store": AWSElasticBlockStore(f"aws://z1/vol-{name}")},
            {"gce_persistent_disk": GCEPersistentDisk(name)},
        ))  # fmt: skip

    def add_volume(self, name=None):
        """Adds or changes a volume that is not bound; some have a claimRef."""
        rng = self.rng
        name = name or self.serial("pv")
        claim = ("ns", f"c{rng.randint(0, 24)}") if rng.random() < 0.25 else None
        self.put(make_volume(
            name, version=self.serial(""), size=rng.choice(("1Gi", "2Gi", "2Gi", "2048Mi", "5Gi", "")),
            storage_class=rng.choice(("local", "local", "local", "dyn", "", "cap")),
            affinity=self.random_affinity(), claim=claim,
            claim_uid=rng.choice((None, None, "", "other")),
            phase=rng.choice(("Available",) * 5 + ("Bound", "Released")),
            labels=self.random_labels(), deleted=rng.random() < 0.07,
            modes=rng.choice((("ReadWriteOnce",), ("ReadWriteOnce", "ReadOnlyMany"), ())),
            volume_mode=rng.choice((None, None, None, "Filesystem", "Block")),
            volume_attributes_class_name=rng.choice((None, None, None, "", "gold")),
            annotations=rng.choice((None,) * 6 + ({BETA_CLASS: "local"},)),
            **self.random_source(name),
        ))  # fmt: skip

    def random_labels(self):
        """A volume's labels."""
        labels = {}
        for key in (ZONE, BETA_ZONE, REGION, BETA_REGION):
            if self.rng.random() < 0.15:
                values = ("r1",) if "region" in key else ("z1", "z1__z2", " z3 __z1", "z1__", "")
                labels[key] = self.rng.choice(values)
        if self.rng.random() < 0.4:
            labels["tier"] = self.rng.choice(("fast", "slow"))
        return labels or None

    def add_claim(self, name=None, *, owner=None):
        """Adds or changes a claim, with its volume where it is bound."""
        rng = self.rng
        name = name or f"c{rng.randint(0, 24)}"
        fields = {"version": self.serial(""), "owner": owner}
        if rng.random() < 0.4:
            volume = f"pv-{name}"
            if rng.random() < 0.9:
                self.put(make_volume(
                    volume, version=self.serial(""), storage_class="imm", claim=("ns", name), phase="Bound",
                    affinity=self.random_affinity(), labels=self.random_labels(), **self.random_source(name),
                ))  # fmt: skip
            self.put(make_claim(
                name, storage_class=rng.choice(("imm", "dyn")), volume=volume, bound=rng.random() < 0.9,
                phase=rng.choice(("Bound",) * 9 + ("Lost",)),
                modes=rng.choice((("ReadWriteOnce",), ("ReadWriteOncePod",))), **fields,
            ))  # fmt: skip
            return
        annotations = rng.choice((
            None, None, None, None, None, None, {SELECTED: f"n{rng.randint(0, 9)}"},
            {BETA_CLASS: rng.choice(("local", "dyn"))},
        ))  # fmt: skip
        selector = rng.choice((
            None, None, None, LabelSelector(match_labels={"tier": "fast"}),
            LabelSelector(match_expressions=(Requirement("tier", "Near"),)),
        ))  # fmt: skip
        self.put(make_claim(
            name, size=rng.choice(("1Gi", "1Gi", "2Gi", "4Gi", None)), annotations=annotations,
            storage_class=rng.choice(("local",) * 6 + ("dyn", "topo", "cap", "cap", "ebs", "vsphere", "mute", "imm", "none", "", None)),
            selector=selector if rng.random() < 0.3 else None,
            volume_mode=rng.choice((None, None, None, "Filesystem", "Block")),
            volume_attributes_class_name=rng.choice((None, None, None, None, "", "gold")),
            deleted=rng.random() < 0.02, **fields,
        ))  # fmt: skip

    def add_attachment(self):
        """Adds or changes a VolumeAttachment."""
        rng = self.rng
        names = [volume.name for volume in self.cluster.volumes]
        self.put(make_attachment(
            f"va{rng.randint(0, 20)}", rng.choice([*self.nodes, "n99"]), rng.choice([*names, None, "pv-none"]),
            rng.choice(("csi.a", "csi.a", "csi.b", "")),
        ))  # fmt: skip

    def random_volume(self):
        """A pod's volume of any sort."""
        rng = self.rng
        number = rng.randint(0, 99)
        return rng.choice((
            *[claim_volume(f"c{rng.randint(0, 24)}")] * 8,
            Volume(name="eph", ephemeral=EphemeralSource()),
            Volume(name="gce", gce_persistent_disk=GCEPersistentDisk(f"d{number % 3}", number % 2 == 0)),
            Volume(name="ebs", aws_elastic_block_store=AWSElasticBlockStore(f"vol-{number % 4}", True)),
            Volume(name="iscsi", iscsi=ISCSI(iqn=f"q{number % 2}", read_only=number % 3 == 0)),
            Volume(name="rbd", rbd=RBD(
                rng.choice((("a", "b"), ("b", "c"), ("d",), None)), "im", rng.choice(("p", "q")), number % 2 == 0
            )),
            Volume(name="azure", azure_disk=AzureDisk(f"uri-{number % 3}", "Shared" if number < 4 else "managed")),
            Volume(name="inline", csi=CSI("csi.a")),
        ))  # fmt: skip

    def random_pod(self, volumes=None):
        """A pod with up to four volumes."""
        name = self.serial("p")
        namespace = "ns" if self.rng.random() < 0.9 else "other"
        chosen = [
            self.random_volume() for _ in range(volumes or self.rng.choice((0, 1, 1, 2, 2, 3)))
        ]
        pod = make_pod_with(*chosen, name=name, uid=f"u-{name}", namespace=namespace)
        if any(v.ephemeral is not None for v in chosen) and self.rng.random() < 0.9:
            self.add_claim(f"{name}-eph", owner=pod.uid if self.rng.random() < 0.9 else "u-0")
        return pod

    def add_pod(self, pod, node_name):
        """Puts a pod on a node, known or not."""
        pod = pod.on(node_name)
        self.pods.setdefault(node_name, []).append(pod)
        self.put(pod)

    def remove_pod(self, pod):
        """Takes a pod away."""
        self.pods[pod.node_name].remove(pod)
        self.table.remove_pod(pod)

    def churn(self, steps=25):
        """A while of everyday life."""
        for _ in range(steps):
            self.rng.choice((
                self.add_claim, self.add_claim, self.add_volume, self.add_attachment, self.set_capacity,
                self._drop_something, self._move_pod, self._move_pod, self._change_node, self._change_volume,
            ))()  # fmt: skip

    def _drop_something(self):
        cluster, rng = self.cluster, self.rng
        lister = rng.choice(
            (cluster.claims, cluster.volumes, cluster.attachments, cluster.csi_capacities)
        )
        if len(lister):
            self.gone(rng.choice(list(lister)))
        if rng.random() < 0.1:
            kind = cluster.storage_classes.get("dyn")
            if kind is None:
                self.put(make_class("dyn", "csi.a"))
            else:
                self.gone(kind)

    def _move_pod(self):
        everywhere = [pod for pods in self.pods.values() for pod in pods]
        if everywhere and self.rng.random() < 0.5:
            self.remove_pod(self.rng.choice(everywhere))
        else:
            self.add_pod(self.random_pod(), self.rng.choice([*self.nodes, "ghost"]))

    def _change_node(self):
        name = self.rng.choice(list(self.nodes))
        choice = self.rng.random()
        if choice < 0.3 and len(self.nodes) > 4:
            for pod in list(self.pods.get(name, ())) if choice < 0.2 else ():
                self.remove_pod(pod)
            self.table.remove_node(name)
            del self.nodes[name]
        elif choice < 0.6:
            self.set_node(f"n{self.rng.randint(0, 14)}")
        else:
            self.set_csi_node(name)

    def _change_volume(self):
        names = [volume.name for volume in self.cluster.volumes]
        if names:
            self.add_volume(self.rng.choice(names))

    # ------------------------------------------------------------ views

    def scene(self, name):
        """A node as it is; None if there is no such node."""
        node = self.nodes.get(name)
        return None if node is None else Scene(node, tuple(self.pods.get(name, ())))

    def everyone(self):
        """Every pod on a node that exists."""
        return [pod for name in self.nodes for pod in self.pods.get(name, ())]

    def views(self) -> Iterator[Seen]:
        """All rows, some in any order, one, none, and what-if worlds."""
        yield self._seen(View.everything(self.table))
        live = self.table.live_rows().tolist()
        for count in (len(live) // 2, 1, 0):
            yield self._seen(View(self.table, np.array(self.rng.sample(live, count), np.intp)))
        yield self._what_if(self.rng.sample(live, len(live) // 2))

    def _seen(self, view):
        return Seen(view, tuple(map(self.scene, view.names())))

    def _what_if(self, rows):
        view = DryRunView(self.table, np.array(rows, np.intp))
        scenes = []
        for position, name in enumerate(view.names()):
            scene = self.scene(name)
            pods = list(scene.pods)
            for pod in self.rng.sample(pods, self.rng.randint(0, len(pods))):
                pods.remove(pod)
                view.remove(position, pod)
            for _ in range(self.rng.randint(0, 2)):
                pods.append(self.random_pod().on(name))
                view.add(position, pods[-1])
            scenes.append(Scene(scene.node, tuple(pods)))
        return Seen(view, tuple(scenes))
