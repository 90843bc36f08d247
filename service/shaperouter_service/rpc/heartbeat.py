"""How often router and worker hear from each other, which both ends go by."""

# Seconds between a worker's snapshots at most, whether or not anything has changed.
HEARTBEAT = 2.0

# Heartbeats that a worker may miss before a router gives it up. Tracing and a busy machine delay
# one by a second or so, never three in a row. To be wrong costs little: its runs are read once more
# elsewhere, and with its next snapshot it is back.
MISSED_HEARTBEATS = 3

# Seconds after which HTTP/2 asks a silent connection whether it is still there, and within which it
# must answer. This ends calls on a network that was cut, which TCP by itself takes minutes to
# notice; and the calls on a worker that drains, which is not watched any more.
PING_INTERVAL, PING_TIMEOUT = 10.0, 5.0

# Seconds between pings that a server puts up with; gRPC's own limit is 5 minutes, and who asks more
# often is cut off. Half of what we need, so that a delay is never taken for haste.
LEAST_PING_INTERVAL = PING_INTERVAL / 2

# Seconds after which a server asks a silent caller whether it is still there, and within which that
# must answer. By itself gRPC asks after two hours: so long would a caller that vanished hold what
# it has of slots and limits.
CALLER_PING_INTERVAL, CALLER_PING_TIMEOUT = 60.0, 20.0
