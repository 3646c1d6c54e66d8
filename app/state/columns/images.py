"""Container images on nodes, for ImageLocality (docs/spec/plugins/image-locality.md, docs/spec/cache.md#images)."""

import itertools
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from app.model.limits import MAX_IMAGE_NAMES
from app.model.objects import ContainerImage
from app.state.columns.sparse import clamp


class Image:
    """One image name: its size in bytes, and the rows that have it.

    The size is the one reported by the first of these rows; another size replaces it when only its row has the image.
    """

    __slots__ = ("rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: set[int] = set()

    def row_array(self) -> npt.NDArray[np.intp]:
        """The rows that have the image, in no particular order."""
        return np.fromiter(self.rows, np.intp, len(self.rows))


class Images:
    """The image names of all rows. ``version`` is incremented whenever a node's images change."""

    def __init__(self) -> None:
        self.by_name: dict[str, Image] = {}
        self.version = 0
        self._names: dict[int, frozenset[str]] = {}

    def set(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Sets a row's images; the first MAX_IMAGE_NAMES names and the first size of a repeated name count."""
        sizes: dict[str, int] = {}
        reported = ((name, image.size_bytes) for image in images for name in image.names or ())
        for name, size in itertools.islice(reported, MAX_IMAGE_NAMES):
            sizes.setdefault(name, clamp(size))
        names = frozenset(sizes)
        before = self._names.get(row, frozenset())
        changed = names != before
        if changed:
            self._names[row] = names
            self._drop(row, before - names)
        for name, size in sizes.items():
            image = self.by_name.get(name)
            if image is None:
                image = self.by_name[name] = Image(size)
            elif image.size != size and image.rows == {row}:
                image.size = size
                changed = True
            image.rows.add(row)
        self.version += changed

    def clear(self, row: int) -> None:
        """Removes the images of a row."""
        names = self._names.pop(row, frozenset())
        self._drop(row, names)
        self.version += bool(names)

    def _drop(self, row: int, names: Iterable[str]) -> None:
        for name in names:
            image = self.by_name[name]
            image.rows.discard(row)
            if not image.rows:
                del self.by_name[name]
