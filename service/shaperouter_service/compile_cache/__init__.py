"""The compile cache: compiled graphs in files, for workers that start later.

This package handles files and needs no TensorFlow: `graphs` writes and reads them, and the
`shaperouterd cache` command shows and removes them.
"""

from shaperouter_service.compile_cache.cache import CompileCache, Entry
from shaperouter_service.compile_cache.checksummed_file import Contents
from shaperouter_service.compile_cache.key import CacheKey
from shaperouter_service.compile_cache.section import Part, Section

__all__ = ["CacheKey", "CompileCache", "Contents", "Entry", "Part", "Section"]
