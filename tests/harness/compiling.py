"""How engine tests compile, which takes most of their time.

TensorFlow reads what is set here when it is imported, so this module comes before it.
"""

import os
from pathlib import Path

from shaperouter_service.compile_cache.flags import set_flags

# LLVM's optimizations are a third of compiling. The services of tests/integration have them: what
# they run inherits no XLA_FLAGS.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# What has been compiled for tests that are not about compiling is kept for the next session, as a
# service keeps it for its next start: under a key of everything that graphs depend on, their code
# among it. Any number of sessions and processes may use it at a time.
CACHE = Path(__file__).parents[2] / "build" / "test-cache"
CACHE_BYTES = 2 * 10**9
set_flags()
