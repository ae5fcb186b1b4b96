"""What holds for every test: properties are about results, not about how long a busy machine takes."""

import os
from pathlib import Path

from hypothesis import settings

settings.register_profile("fedclust", deadline=None)
settings.load_profile("fedclust")

if os.environ.get("FEDCLUST_DATA"):  # some tests run commands in folders of their own
    os.environ["FEDCLUST_DATA"] = str(Path(os.environ["FEDCLUST_DATA"]).resolve())
