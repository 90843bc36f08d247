"""What all tests share."""

from hypothesis import settings

# The machine may have more to do: an example takes as long as it takes.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
