"""Settings of compilation in engine tests, which takes most of their time.

TensorFlow reads these settings when it is imported, so this module must be imported first.
"""

import os
from pathlib import Path

from shaperouter_service.compile_cache.flags import set_flags

# LLVM's optimizations take a third of the compile time. Services of tests/integration use them,
# because they do not inherit XLA_FLAGS.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

# The compile cache of tests that are not about compiling. Like a service's, its key includes all
# that graphs depend on, also their code. Any number of sessions may use it at the same time.
CACHE = Path(__file__).parents[2] / "build" / "test-cache"
CACHE_BYTES = 2 * 10**9
set_flags()
