"""Count the golden cases that changed since the first recording: `python -m tests.golden` (`--names` lists them)."""

import argparse
import dataclasses
import sys

from tests.golden import changes


def main() -> int:
    words = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    words.add_argument("--names", action="store_true", help="list the cases that changed, are gone or are new")
    given = words.parse_args()
    listed = changes.read_list((changes.HERE / "CHANGES.md").read_text())
    values = changes.read_values("values.json")
    found = changes.find_changes(changes.read_values("recorded.json"), values, listed.renamed)
    for kind, names in dataclasses.asdict(found).items():
        print(f"{kind}: {len(names)}")  # noqa: T201
        if given.names and kind != "unchanged":
            print("".join(f"  {name}\n" for name in names), end="")  # noqa: T201
    faults = changes.find_faults(listed, found)
    print("\n".join(faults or ["CHANGES.md lists exactly what changed"]))  # noqa: T201
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
