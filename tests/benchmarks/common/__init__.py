"""Code that the benchmarks against other systems share: model, processes of contestants, reports.

Contestants run in environments and processes of their own and speak one line protocol: their side
of it is `protocol`, the conductor's is `processes`.
"""
