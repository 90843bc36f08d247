"""File descriptors: raises their limit, and reserves some that connections never get."""

import resource

# More than the connections of any router need. Some systems allow a billion, and programs that
# visit all of them take minutes.
ENOUGH = 65_536

# Reserved for other uses than incoming connections: connections to workers, pipes of a starting
# worker, files that are read again.
RESERVE = 256


def raise_limit() -> None:
    """Raises this process's limit of descriptors, often 1024, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(ENOUGH, hard)
    if resource.RLIM_INFINITY != soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def for_connections() -> int:
    """Descriptors for incoming connections: all but the reserve, or half if there are few."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = ENOUGH if soft == resource.RLIM_INFINITY else soft
    return max(limit - RESERVE, limit // 2)
