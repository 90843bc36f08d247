"""The input that hangs a worker; see `poison`."""

# The function loops for inputs above the limit.
LIMIT = 1e6
POISON = 2 * LIMIT
