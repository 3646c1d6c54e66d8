"""ImageLocality, one node at a time (docs/spec/plugins/image-locality.md)."""

MIB = 1 << 20


def score_node(pod, scene, scenes, sizes):
    """``scenes``: all nodes; ``sizes``: bytes by image name, as first reported."""
    spec = pod.spec
    containers = [*(spec.init_containers or ()), *spec.containers]
    wanted = [c.image for c in containers]
    wanted += [v.image.reference for v in spec.volumes or () if v.image]
    total = 0
    for image in wanted:
        name = image if ":" in image.split("/")[-1] else f"{image}:latest"
        if name in names_on(scene):
            having = sum(name in names_on(other) for other in scenes)
            total += int(float(sizes[name]) * (float(having) / float(len(scenes))))
    low, high = 23 * MIB, 1000 * MIB * len(containers)
    total = min(max(total, low), high)
    return 100 * (total - low) // (high - low)


def names_on(scene):
    return {name for image in scene.node.status.images or () for name in image.names or ()}
