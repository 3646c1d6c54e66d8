"""The types of arrays that many modules use."""

import numpy as np
import numpy.typing as npt

#: Amounts, counts, scores, generations.
Int64 = npt.NDArray[np.int64]
#: Rows of the node table, or other positions.
Rows = npt.NDArray[np.intp]
#: Fractions and weighted sums.
Float64 = npt.NDArray[np.float64]
