"""What the benchmarks against other systems share: the model, contestants as processes, reports.

Contestants run in environments and processes of their own and speak one line protocol: their side
of it is `protocol`, the conductor's is `processes`.
"""
