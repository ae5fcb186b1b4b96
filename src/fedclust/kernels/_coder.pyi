from fedclust.core.types import Array, Ints

def epoch(
    batch: int,
    rate: float,
    steps: int,
    rows: Array,
    order: Ints,
    sizes: Ints,
    weights: Array,
    means: Array,
    squares: Array,
    /,
) -> float: ...
def choose(name: str, /) -> str: ...
