"""ImageLocality: prefers nodes that already have the pod's images (docs/spec/plugins/image-locality.md)."""

from collections.abc import Hashable
from typing import ClassVar, Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from app.framework.handle import Handle
from app.framework.interface import MAX_NODE_SCORE, CycleState
from app.framework.optional import ColumnScore
from app.model.features import Rule
from app.model.objects import PodSpec
from app.model.pod import Pod, PodTemplate
from app.state.columns.arrays import Int64
from app.state.table import NodeTable
from app.state.view import View

_MIB: Final = 1024 * 1024
#: Sums of image sizes (bytes) up to the first score 0; from the second, times the number of containers, they score
#: 100.
_MIN_BYTES: Final = 23 * _MIB
_MAX_BYTES_PER_CONTAINER: Final = 1000 * _MIB
#: The limit in bytes for all kept scores.
_MAX_KEPT_BYTES: Final = 2**24

_Scores = npt.NDArray[np.int8]


class ImageLocality(ColumnScore):
    """Scores the sizes of the pod's images on a node, each weighted by the share of nodes that have it.

    The scores of a template are computed for all rows at once and kept until nodes or their images change. The plugin
    is not NodeLocal: kubelets report images all the time, and each report would change the epoch of all NodeLocal
    plugins.
    """

    NAME: ClassVar[str] = "ImageLocality"

    def __init__(self, _args: object, handle: Handle) -> None:
        """Takes no arguments."""
        self._table: Final = handle.table
        self._count_volumes: Final = Rule.ImageVolumes in handle.features.rules
        self._kept: Final[WeakKeyDictionary[PodTemplate, tuple[Hashable, _Scores | None]]] = (
            WeakKeyDictionary()
        )

    def score(self, _state: CycleState, pod: Pod, view: View) -> Int64 | None:
        """int64[n], 0 to 100; None if no node has any of the images."""
        scores = self.column(pod)
        return None if scores is None else scores.take(view.rows).astype(np.int64)

    def column(self, pod: Pod) -> _Scores | None:
        """int8[capacity], 0 to 100: the scores of every row; the same array until one changes. None as for
        ``score``."""
        table = self._table
        epoch = (table.node_count, table.images.version, table.capacity)
        known = self._kept.get(pod.template)
        if known is None or known[0] != epoch:
            if len(self._kept) * table.capacity > _MAX_KEPT_BYTES:
                self._kept.clear()
            scores = _scores(pod.spec, table, count_volumes=self._count_volumes)
            known = self._kept[pod.template] = (epoch, scores)
        return known[1]


def _scores(spec: PodSpec, table: NodeTable, *, count_volumes: bool) -> _Scores | None:
    """int8[capacity]: the score of every row; None if every node scores 0.

    ``count_volumes``: whether image volumes raise the size for the highest score, as from Kubernetes 1.37 on.
    """
    if not any(name in table.images.by_name for name in _image_names(spec)):
        return None
    containers = len(spec.init_containers or ()) + len(spec.containers)
    if count_volumes:
        containers += sum(volume.image is not None for volume in spec.volumes or ())
    highest = _MAX_BYTES_PER_CONTAINER * containers
    sums = np.zeros(table.capacity, np.int64)
    for name in _image_names(spec):
        image = table.images.by_name.get(name)
        if image is not None:
            part = int(image.size * (len(image.rows) / table.node_count))
            sums[image.row_array()] += max(-highest, min(part, highest))
    clamped = np.where(sums < _MIN_BYTES, _MIN_BYTES, np.minimum(sums, highest))
    scores = (clamped - _MIN_BYTES) * MAX_NODE_SCORE // (highest - _MIN_BYTES)
    return scores.astype(np.int8)


def _image_names(spec: PodSpec) -> list[str]:
    """The pod's images as nodes report them, one entry per container and image volume."""
    images = [container.image for container in (*(spec.init_containers or ()), *spec.containers)]
    images += [v.image.reference for v in spec.volumes or () if v.image is not None]
    return [normalized(image) for image in images]


def normalized(image: str) -> str:
    """The image with ``:latest`` appended unless it has a tag or digest."""
    return image if image.rfind(":") > image.rfind("/") else image + ":latest"
