"""Container images on nodes, for ImageLocality (spec: plugins.md 2.17 and 5.4)."""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from app.model.objects import ContainerImage


class Image:
    """One image name: its size in bytes, as the first node to report it said, and the rows that have it."""

    __slots__ = ("rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: set[int] = set()

    def row_array(self) -> npt.NDArray[np.intp]:
        """The rows that have the image, in no particular order."""
        return np.fromiter(self.rows, np.intp, len(self.rows))


class Images:
    """Image names over all rows. ``version`` grows whenever any node's images change."""

    def __init__(self) -> None:
        self.by_name: dict[str, Image] = {}
        self.version = 0
        self._names: dict[int, frozenset[str]] = {}

    def set(self, row: int, images: Iterable[ContainerImage]) -> None:
        """Stores the images of a row."""
        sizes = {name: image.size_bytes for image in images for name in image.names or ()}
        names = frozenset(sizes)
        before = self._names.get(row, frozenset())
        if names == before:
            return
        self._drop(row, before - names)
        for name in names - before:
            image = self.by_name.get(name)
            if image is None:
                image = self.by_name[name] = Image(sizes[name])
            image.rows.add(row)
        self._names[row] = names
        self.version += 1

    def clear(self, row: int) -> None:
        """Forgets a row."""
        names = self._names.pop(row, frozenset())
        self._drop(row, names)
        self.version += bool(names)

    def _drop(self, row: int, names: Iterable[str]) -> None:
        for name in names:
            image = self.by_name[name]
            image.rows.discard(row)
            if not image.rows:
                del self.by_name[name]
