import pytest

from app.model.csi_migration import (
    AWS_EBS,
    AZURE_DISK,
    CINDER,
    GCE_PD,
    PORTWORX,
    TranslationError,
    driver_of_provisioner,
    inline_handle,
    migrated,
    plugin_of,
    volume_handle,
)
from app.model.objects import (
    CSI,
    AWSElasticBlockStore,
    AzureDisk,
    Cinder,
    GCEPersistentDisk,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Portworx,
    Volume,
)
from app.model.selectors import Requirement
from app.model.storage import PersistentVolume, PersistentVolumeSpec, VolumeNodeAffinity

ZONE, BETA_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
REGION, BETA_REGION = "topology.kubernetes.io/region", "failure-domain.beta.kubernetes.io/region"
EBS_ZONE = "topology.ebs.csi.aws.com/zone"


def volume(*terms, labels=None, **source):
    affinity = VolumeNodeAffinity(NodeSelector(terms)) if terms else None
    return PersistentVolume(
        metadata=ObjectMeta(name="pv", labels=labels),
        spec=PersistentVolumeSpec(node_affinity=affinity, **source),
    )


def ebs(*terms, labels=None, handle="vol-1"):
    return volume(*terms, labels=labels, aws_elastic_block_store=AWSElasticBlockStore(handle))


def term(**values):
    names = {"zone": ZONE, "beta_zone": BETA_ZONE, "region": REGION, "beta_region": BETA_REGION}
    return NodeSelectorTerm(
        tuple(Requirement(names.get(k, k), "In", tuple(v.split())) for k, v in values.items())
    )


def terms(pv):
    return pv.spec.node_affinity.required.node_selector_terms


@pytest.mark.parametrize(
    ("source", "plugin", "handle"),
    [
        ({"aws_elastic_block_store": AWSElasticBlockStore("vol-1")}, AWS_EBS, "vol-1"),
        ({"aws_elastic_block_store": AWSElasticBlockStore("aws://z/vol-1")}, AWS_EBS, "vol-1"),
        ({"aws_elastic_block_store": AWSElasticBlockStore("aws:///vol-1/")}, AWS_EBS, "vol-1"),
        ({"aws_elastic_block_store": AWSElasticBlockStore("anything")}, AWS_EBS, "anything"),
        (
            {"gce_persistent_disk": GCEPersistentDisk("d")},
            GCE_PD,
            "projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d",
        ),
        ({"cinder": Cinder("v")}, CINDER, "v"),
        ({"portworx_volume": Portworx("v")}, PORTWORX, "v"),
        ({"azure_disk": AzureDisk("uri", "Managed")}, AZURE_DISK, "uri"),
        ({"azure_disk": AzureDisk("uri")}, AZURE_DISK, "uri"),
    ],
)
def test_handles(source, plugin, handle):
    inline, pv = Volume(name="v", **source), volume(**source)
    assert plugin_of(inline) is plugin_of(pv.spec) is plugin
    assert inline_handle(inline) == volume_handle(pv) == handle


@pytest.mark.parametrize(
    ("labels", "handle"),
    [
        ({ZONE: "us-a-b"}, "projects/UNSPECIFIED/zones/us-a-b/disks/d"),
        ({ZONE: "us-a-b", BETA_ZONE: "us-a-c"}, "projects/UNSPECIFIED/zones/us-a-c/disks/d"),
        ({ZONE: "us-a-b", BETA_ZONE: ""}, "projects/UNSPECIFIED/zones/us-a-b/disks/d"),
        ({ZONE: "us-a-b__us-a-c"}, "projects/UNSPECIFIED/regions/us-a/disks/d"),
    ],
)
def test_handles_of_gce_disks_follow_their_zones(labels, handle):
    pv = volume(labels=labels, gce_persistent_disk=GCEPersistentDisk("d"))
    assert volume_handle(pv) == handle


@pytest.mark.parametrize(
    ("zones", "text"),
    [
        (
            "us-a-b__west",
            "failed to get region from zones: zone in unexpected format, "
            "expected: {locale}-{region}-{zone}, got: west",
        ),
        (
            "us-a-b__us-c-d",
            "failed to get region from zones: multiple or no regions gotten from zones, "
            "got: map[us-a:{} us-c:{}]",
        ),
    ],
)
def test_zones_that_are_no_region(zones, text):
    with pytest.raises(TranslationError) as caught:
        volume_handle(volume(labels={ZONE: zones}, gce_persistent_disk=GCEPersistentDisk("d")))
    assert str(caught.value) == text


@pytest.mark.parametrize("handle", ["aws://z/disk", "aws://vol-1", "aws://z/vol-1/x"])
def test_ebs_names_that_are_none(handle):
    with pytest.raises(TranslationError, match="Invalid format for AWS volume"):
        volume_handle(ebs(handle=handle))


def test_unmanaged_azure_disks_and_other_sources_have_no_handle():
    with pytest.raises(TranslationError, match=r"kind\(Shared\) is not supported in csi migration"):
        inline_handle(Volume(name="v", azure_disk=AzureDisk("uri", "Shared")))
    plain = Volume(name="v", csi=CSI("csi.a"))
    assert plugin_of(plain) is None
    with pytest.raises(TranslationError):
        inline_handle(plain)


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [
        ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
        ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
        ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
        ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
        ("kubernetes.io/azure-file", ""),
        ("kubernetes.io/vsphere-volume", ""),
        ("csi.example.com", "csi.example.com"),
        ("kubernetes.io/no-provisioner", "kubernetes.io/no-provisioner"),
    ],
)
def test_drivers_of_provisioners(provisioner, driver):
    assert driver_of_provisioner(provisioner) == driver


@pytest.mark.parametrize(
    ("pv", "expected"),
    [
        (ebs(term(zone="z1 z2")), (term(**{EBS_ZONE: "z1 z2"}),)),
        (ebs(term(beta_zone="z1")), (term(**{EBS_ZONE: "z1"}),)),
        (ebs(term(zone="z1"), term(beta_zone="z2")), (term(**{EBS_ZONE: "z1"}), term(beta_zone="z2"))),
        (ebs(term(x="y"), labels={ZONE: "z2__z1"}), (term(x="y", **{EBS_ZONE: "z1 z2"}),)),
        (ebs(labels={BETA_ZONE: " z1 __"}), (term(**{EBS_ZONE: "z1"}),)),
        (
            ebs(term(beta_zone="z1", beta_region="r")),
            (term(**{EBS_ZONE: "z1", REGION: "r"}),),
        ),
        (ebs(term(zone="z1", beta_region="r")), (term(**{EBS_ZONE: "z1", BETA_REGION: "r"}),)),
    ],
)  # fmt: skip
def test_zones_become_the_drivers(pv, expected):
    assert terms(migrated(pv)) == expected


@pytest.mark.parametrize(
    "pv",
    [
        ebs(),
        ebs(labels={ZONE: "__"}),
        volume(term(zone="z1"), azure_disk=AzureDisk("uri", "Managed")),
        volume(term(zone="z1"), portworx_volume=Portworx("v")),
        volume(term(zone="z1"), csi=CSI("csi.a", "h")),
        volume(term(zone="z1")),
    ],
)
def test_volumes_that_stay_as_they_are(pv):
    assert migrated(pv) is pv


def test_a_volume_without_a_handle_cannot_be_migrated():
    with pytest.raises(TranslationError):
        migrated(ebs(term(zone="z1"), handle="aws://z/x"))
