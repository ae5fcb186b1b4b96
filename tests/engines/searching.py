"""What a coordinator's folders hold, looked through for bytes that must not be there."""


def grepped(folder, needles):
    """Files under a folder that hold any of these bytes."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            found += [(path, needle) for needle in needles if needle in data]
    return found
