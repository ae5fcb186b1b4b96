"""What holds for every test: properties are about results, not about how long a busy machine takes."""

from hypothesis import settings

settings.register_profile("fedclust", deadline=None)
settings.load_profile("fedclust")
