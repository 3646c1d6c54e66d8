"""The cluster as a whole: what it is made of, what it loads, how it is served."""

import asyncio
import re

import aiohttp
import pytest
import yaml
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio import watch

from app.kube.kubeconfig import load_connection
from app.sim import (
    ClusterOptions,
    EmbeddedCluster,
    KubeletOptions,
    ManifestError,
    NodeOptions,
    serve,
)
from app.sim.resources.kinds import NODES, PODS
from tests.shell.sim.client import Client


def write(path, text: str):
    path.write_text(text)
    return path


async def test_what_every_cluster_has(client: Client) -> None:
    assert await client.names("/api/v1/namespaces") == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    classes = (await client.get("/apis/scheduling.k8s.io/v1/priorityclasses")).body["items"]
    assert {item["metadata"]["name"]: item["value"] for item in classes} == {
        "system-cluster-critical": 2_000_000_000,
        "system-node-critical": 2_000_001_000,
    }


async def test_nodes_by_the_dozen() -> None:
    options = NodeOptions(
        count=11,
        zones=2,
        cpu="8",
        labels={"pool": "x"},
        taints=({"key": "k", "effect": "NoSchedule"},),
        images={"nginx:1": 5},
    )
    async with EmbeddedCluster(ClusterOptions(nodes=options)) as cluster:
        nodes = [record.value for record in cluster.api.store["nodes"].ordered()]
    assert [nodes[0]["metadata"]["name"], nodes[-1]["metadata"]["name"]] == ["node-00", "node-10"]
    labels = nodes[3]["metadata"]["labels"]
    assert labels["topology.kubernetes.io/zone"] == "zone-1"
    assert labels["kubernetes.io/hostname"] == "node-03"
    assert labels["pool"] == "x"
    assert nodes[0]["spec"]["taints"] == [{"key": "k", "effect": "NoSchedule"}]
    status = nodes[0]["status"]
    assert status["allocatable"] == status["capacity"]
    assert status["capacity"]["cpu"] == "8"
    assert status["images"] == [{"names": ["nginx:1"], "sizeBytes": 5}]
    assert len({node["status"]["addresses"][0]["address"] for node in nodes}) == 11


async def test_more_nodes_later(cluster: EmbeddedCluster) -> None:
    cluster.add_nodes(NodeOptions(count=2))
    cluster.add_nodes(NodeOptions(count=2, first=2))
    assert len(cluster.api.store["nodes"].records) == 4


class TestLoading:
    async def load(self, *paths) -> EmbeddedCluster:
        async with EmbeddedCluster(ClusterOptions(load=paths)) as cluster:
            return cluster

    async def test_documents_lists_and_statuses(self, tmp_path) -> None:
        path = write(
            tmp_path / "all.yaml",
            """
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: p, namespace: made, uid: old, resourceVersion: "77", creationTimestamp: 2020-01-01T00:00:00Z}
  spec: {nodeName: n, containers: [{name: c, image: i}]}
  status: {phase: Running}
---
kind: NodeList
apiVersion: v1
items:
- metadata: {name: n}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: v}, spec: {}, status: {phase: Available}}
---
""",
        )
        cluster = await self.load(path)
        pod = cluster.api.get(PODS, "made", "p").value
        assert pod["status"]["phase"] == "Running"
        assert pod["metadata"]["uid"] != "old"
        assert cluster.api.find(NODES, "", "n") is not None
        volume = cluster.api.store["persistentvolumes"].records["", "v"].value
        assert volume["status"]["phase"] == "Available"

    async def test_later_files_replace(self, tmp_path) -> None:
        one = write(
            tmp_path / "1.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: '1'}}",
        )
        two = write(
            tmp_path / "2.yaml",
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {x: '2'}}",
        )
        cluster = await self.load(one, two)
        assert cluster.api.store["configmaps"].records["default", "a"].value["data"] == {"x": "2"}

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("a: b: c", "mapping values are not allowed"),
            ("- x", "document 1: an object is expected, not list"),
            (
                "{apiVersion: v1, kind: Foo}",
                "document 1: kind 'Foo' in apiVersion 'v1' is not served",
            ),
            ("{apiVersion: v1, kind: PodList, items: [1]}", "items[0]: an object is expected"),
            ("{apiVersion: v1, kind: Node}", "Node without metadata.name"),
            (
                "{apiVersion: v1, kind: Pod, metadata: {name: p}}",
                'Pod "p" is invalid: spec.containers',
            ),
        ],
    )
    async def test_mistakes_name_file_and_place(self, tmp_path, text, problem) -> None:
        path = write(tmp_path / "bad.yaml", text)
        with pytest.raises(ManifestError) as caught:
            await self.load(path)
        assert str(caught.value).startswith(f"{path}: ")
        assert problem in str(caught.value)

    async def test_a_missing_file(self, tmp_path) -> None:
        with pytest.raises(ManifestError, match="No such file"):
            await self.load(tmp_path / "none.yaml")


async def test_serve_writes_a_kubeconfig_and_stops(tmp_path) -> None:
    out = tmp_path / "sub" / "kubeconfig"
    ready: asyncio.Future[EmbeddedCluster] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    options = ClusterOptions(kubeconfig_out=out)
    async with asyncio.TaskGroup() as group:
        group.create_task(serve(options, ready=ready.set_result, stop=stop))
        cluster = await ready
        config = yaml.safe_load(out.read_text())
        server = config["clusters"][0]["cluster"]["server"]
        assert server == cluster.url
        async with aiohttp.ClientSession() as session:
            assert (await Client(session, server).get("/healthz")).status == 200
        stop.set()
    assert out.stat().st_mode & 0o077 == 0
    with pytest.raises(OSError, match="Connect"):
        await asyncio.open_connection("127.0.0.1", cluster.port)


_OTHER = """\
apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
- {name: work, cluster: {server: "https://work:6443", certificate-authority-data: Zm9v}}
users:
- {name: kubernetes-admin, user: {token: the-only-copy}}
contexts:
- {name: work, context: {cluster: work, user: kubernetes-admin, namespace: shop}}
current-context: work
"""


async def test_a_kubeconfig_keeps_what_is_in_it(tmp_path) -> None:
    file, link = tmp_path / "config", tmp_path / "link"
    file.write_text(_OTHER)
    link.symlink_to(file)
    for _ in range(2):
        async with EmbeddedCluster(ClusterOptions(kubeconfig_out=link)) as cluster:
            config = yaml.safe_load(file.read_text())
            assert link.is_symlink()
            assert file.stat().st_mode & 0o077 == 0
            before = yaml.safe_load(_OTHER)
            for section in ("clusters", "users", "contexts"):
                assert config[section][:-1] == before[section]
            assert config["preferences"] == {"colors": True}
            assert config["current-context"] == "embedded"
            assert load_connection(kubeconfig=str(file), wall=lambda: 0.0).server == cluster.url
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["config", "link"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("a: [", "it is no YAML"),
        ("- a", "it is no kubeconfig"),
        ("kind: Pod", "it is no kubeconfig"),
        ("a: 1\n---\nb: 1", "it is no kubeconfig"),
        ("users: {a: 1}", "its users are no list of objects"),
        ("users: [a]", "its users are no list of objects"),
        ("users: [{name: embedded, user: {token: mine}}]", "it has another user 'embedded'"),
        ("users: [{name: embedded}]", "it has another user 'embedded'"),
        (
            "clusters: [{name: embedded, cluster: {server: 'https://a'}}]",
            "it has another cluster 'embedded'",
        ),
        (
            "contexts: [{name: embedded, context: {cluster: a, user: b}}]",
            "it has another context 'embedded'",
        ),
    ],
)
async def test_a_kubeconfig_that_cannot_be_merged_stays(tmp_path, content, why) -> None:
    out = tmp_path / "config"
    out.write_text(content)
    with pytest.raises(ManifestError, match=rf"^{re.escape(str(out))}: .*: {why}"):
        await serve(ClusterOptions(kubeconfig_out=out))
    assert out.read_text() == content
    assert list(tmp_path.iterdir()) == [out]


async def test_a_port_in_use_is_an_error(cluster: EmbeddedCluster) -> None:
    with pytest.raises(OSError, match="address already in use"):
        await serve(ClusterOptions(port=cluster.port))


async def test_a_generated_client_can_read_everything() -> None:
    """kubernetes-asyncio refuses objects in which a required field is missing."""
    options = ClusterOptions(nodes=NodeOptions(count=1), kubelets=KubeletOptions(start_delay=0.0))
    async with EmbeddedCluster(options) as cluster:
        configuration = kubernetes.Configuration(host=cluster.url)
        async with kubernetes.ApiClient(configuration) as api:
            core = kubernetes.CoreV1Api(api)
            (node,) = (await core.list_node()).items
            container = kubernetes.V1Container(name="c", image="i")
            spec = kubernetes.V1PodSpec(containers=[container], node_name=node.metadata.name)
            metadata = kubernetes.V1ObjectMeta(name="p")
            body = kubernetes.V1Pod(metadata=metadata, spec=spec)
            await core.create_namespaced_pod("default", body)
            phases = []
            async with watch.Watch().stream(core.list_namespaced_pod, "default") as stream:
                async for event in stream:
                    phases.append(event["object"].status.phase)
                    if phases[-1] == "Running":
                        break
            assert phases[-1] == "Running"
            labelled = await core.patch_namespaced_pod(
                "p", "default", {"metadata": {"labels": {"a": "b"}}}
            )
            assert labelled.metadata.labels == {"a": "b"}
            assert (await core.delete_namespaced_pod("p", "default")).metadata.name == "p"
