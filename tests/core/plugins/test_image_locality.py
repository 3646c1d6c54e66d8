import numpy as np
import pytest

from app.framework.handle import Handle
from app.framework.interface import CycleState
from app.model.objects import Container, ContainerImage, Node, NodeStatus, ObjectMeta, PodSpec
from app.model.pod import make_pod
from app.plugins.image_locality import ImageLocality, normalized
from app.state.cluster import Cluster
from app.state.table import NodeTable
from app.state.view import View
from tests.core.framework.worlds import World, check_score
from tests.core.plugins.twins import image_locality as twin


def against(world):
    scenes = world.scenes()
    sizes = {name: image.size for name, image in world.table.images.by_name.items()}
    return lambda pod, scene: twin.score_node(pod, scene, scenes, sizes)


def test_agrees_with_its_twin():
    scores = []
    for seed in range(12):
        world = World(seed)
        plugin = ImageLocality(None, world.handle)
        for _ in range(4):
            scores += check_score(
                world, plugin, world.random_pod(), against(world), state=CycleState()
            )
    assert len(set(scores)) > 5


def test_kept_scores_follow_the_nodes_and_their_images():
    world = World(2, nodes=60)
    plugin, state, pod = ImageLocality(None, world.handle), CycleState(), world.random_pod()
    for change in range(8):
        check_score(world, plugin, pod, against(world), state=state)
        world.set_node(f"new-{change}")
    world.add_pod(world.random_pod(), "another ghost")
    check_score(world, plugin, pod, against(world), state=state)


def test_scores_are_kept_while_images_stay_and_only_then():
    world = World(2)
    plugin, pod = ImageLocality(None, world.handle), world.random_pod()
    view = View.everything(world.table)
    plugin.score(CycleState(), pod, view)
    kept = plugin._kept[pod.template]
    world.add_pod(world.random_pod(), next(iter(world.nodes)))
    plugin.score(CycleState(), pod, view)
    assert plugin._kept[pod.template] is kept
    world.set_node("one more")
    plugin.score(CycleState(), pod, View.everything(world.table))
    assert plugin._kept[pod.template] is not kept


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx", "nginx:latest"),
        ("nginx:1", "nginx:1"),
        ("host:5000/web", "host:5000/web:latest"),
        ("host:5000/web:v1", "host:5000/web:v1"),
        ("host/web@sha256:abc", "host/web@sha256:abc"),
        ("", ":latest"),
    ],
)
def test_normalized(image, expected):
    assert normalized(image) == expected


def score_where_one_of(nodes, image):
    """The score of the node that has an image, as the only one of several."""
    world = World(0, nodes=4)
    for name in list(world.nodes):
        world.table.remove_node(name)
    for number in range(1, nodes):
        world.table.set_node(Node(metadata=ObjectMeta(name=f"bare-{number}")))
    status = NodeStatus(images=(image,))
    row = world.table.set_node(Node(metadata=ObjectMeta(name="n"), status=status))
    pod = make_pod(PodSpec(containers=(Container(image="big"),)), namespace="n", name="p", uid="u")
    view = View(world.table, np.array([row]))
    return ImageLocality(None, world.handle).score(CycleState(), pod, view).tolist()


@pytest.mark.parametrize(
    ("mib", "expected"), [(23, 0), (22, 0), (33, 1), (1000, 100), (5000, 100), (512, 50)]
)
def test_one_image_on_the_only_node(mib, expected):
    assert score_where_one_of(1, ContainerImage(("big:latest",), mib << 20)) == [expected]


@pytest.mark.parametrize(("short_by", "expected"), [(0, 1), (1, 0), (2, 0)])
def test_the_share_of_an_image_is_truncated(short_by, expected):
    worth_one_point = (23 << 20) + -(-(977 << 20) // 100)
    image = ContainerImage(("big:latest",), 3 * worth_one_point - short_by)
    assert score_where_one_of(3, image) == [expected]


def reported_sizes(*reports):
    """The size of each image after these reports, in their order: (node name, {image: size})."""
    table = NodeTable()
    for name, sizes in reports:
        images = tuple(ContainerImage((image,), size) for image, size in sizes)
        table.set_node(Node(metadata=ObjectMeta(name=name), status=NodeStatus(images=images)))
    return {image: known.size for image, known in table.images.by_name.items()}


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        pytest.param([("a", [("x", 1)]), ("b", [("x", 2)])], {"x": 1}, id="the first counts"),
        pytest.param([("a", [("x", 1)]), ("a", [("x", 2)])], {"x": 2}, id="alone it may change"),
        pytest.param(
            [("a", [("x", 1)]), ("b", [("x", 1)]), ("a", [("x", 2)])],
            {"x": 1},
            id="not while others have it",
        ),
        pytest.param(
            [("a", [("x", 1)]), ("b", [("x", 2)]), ("a", []), ("b", [("x", 2)])],
            {"x": 2},
            id="the last one left is believed when it reports again",
        ),
        pytest.param([("a", [("x", 1), ("x", 2)])], {"x": 1}, id="twice in one report"),
        pytest.param([("a", [("x", 1)]), ("a", [("y", 2)])], {"y": 2}, id="gone"),
    ],
)
def test_the_size_of_an_image(reports, expected):
    assert reported_sizes(*reports) == expected


def test_another_size_makes_another_score():
    world = World(0, nodes=4)
    for name in list(world.nodes):
        world.table.remove_node(name)
    plugin, scores = ImageLocality(None, world.handle), []
    pod = make_pod(PodSpec(containers=(Container(image="big"),)), namespace="n", name="p", uid="u")
    for mib in (23, 1000):
        status = NodeStatus(images=(ContainerImage(("big:latest",), mib << 20),))
        row = world.table.set_node(Node(metadata=ObjectMeta(name="n"), status=status))
        scores += plugin.score(CycleState(), pod, View(world.table, np.array([row]))).tolist()
    assert scores == [0, 100]


@pytest.mark.parametrize("containers", [1, 3, 200])
@pytest.mark.parametrize("size", [2**63 - 1, 2**62, -(2**63)])
def test_sizes_and_sums_beyond_int64_are_the_most_or_the_least_there_is(size, containers):
    table = NodeTable()
    images = tuple(ContainerImage((f"huge-{n}:1",), size) for n in range(containers))
    table.set_node(Node(metadata=ObjectMeta(name="n"), status=NodeStatus(images=images)))
    spec = PodSpec(containers=tuple(Container(image=f"huge-{n}:1") for n in range(containers)))
    handle = Handle(table, Cluster(), "default-scheduler")
    pod = make_pod(spec, namespace="n", name="p", uid="u")
    scores = ImageLocality(None, handle).score(CycleState(), pod, View.everything(table))
    assert scores.tolist() == [100 if size > 0 else 0]
