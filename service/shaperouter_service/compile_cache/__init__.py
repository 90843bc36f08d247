"""The compile cache: compiled graphs in files, for workers that start after.

This room knows of files, not of graphs: `graphs` puts them in and takes them out, and the
`shaperouterd cache` command shows and removes them, without TensorFlow.
"""

from shaperouter_service.compile_cache.cache import CompileCache, Entry
from shaperouter_service.compile_cache.key import CacheKey
from shaperouter_service.compile_cache.sealed import Sealed
from shaperouter_service.compile_cache.section import Part, Section

__all__ = ["CacheKey", "CompileCache", "Entry", "Part", "Sealed", "Section"]
