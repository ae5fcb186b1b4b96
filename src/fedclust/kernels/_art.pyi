from fedclust.core.types import Array, Floats, Ints, Units

def learn(
    server: bool,
    most: int,
    rows: Floats,
    places: Floats,
    wins: Ints,
    widths: Floats,
    order: Units,
    edges: Units,
    counts: Ints,
    levels: Floats,
    /,
) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes]: ...
def nearest(width: float, rows: Array, places: Floats, labels: Units, least: Floats, /) -> None: ...
def choose(name: str, /) -> str: ...
