"""A simulation of fleets, to answer how many workers and routers a load needs; see docs/scale.md.

Everything that decides is the product's own code: the router's catalog, decisions, overload guard,
attempts and compile policy, and the worker's queue, scheduler, covers and table of graphs. Only the
device, the compiler, the network and the clock are simulated, with measured costs.
"""
