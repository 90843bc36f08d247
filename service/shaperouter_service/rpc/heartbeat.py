"""Intervals of heartbeats and pings between routers, workers and callers."""

# Maximum seconds between a worker's snapshots, even if nothing has changed.
HEARTBEAT = 2.0

# Heartbeats that a worker may miss before a router counts it as lost. Tracing and a busy machine
# delay a heartbeat by about a second; only graphs of deep models without the native kernels and
# large functions may take longer. A mistake costs little: the runs continue elsewhere after another
# prefill, and the next snapshot brings the worker back.
MISSED_HEARTBEATS = 3

# Seconds of silence after which a router pings a connection, and within which the answer must come.
# Pings end calls on a broken network, which TCP alone notices after minutes, and also calls on a
# draining worker, which sends no snapshots.
PING_INTERVAL, PING_TIMEOUT = 10.0, 5.0

# Shortest ping interval that a server accepts; gRPC's default is 5 minutes, and it disconnects
# callers that ping more often. Half of our interval, because a delayed ping shortens the next one.
MIN_PING_INTERVAL = PING_INTERVAL / 2

# Seconds of silence after which a server pings a caller, and within which the answer must come.
# gRPC's default is two hours, during which a vanished caller would keep its slots and limits.
CALLER_PING_INTERVAL, CALLER_PING_TIMEOUT = 60.0, 20.0
