"""The type names that all modules share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

PartyId = str
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Units = NDArray[np.int32]
Limbs = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Array = NDArray[Any]
