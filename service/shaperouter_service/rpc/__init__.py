"""The gRPC servers of routers and workers: statuses of errors, limits, TLS, sockets, health."""
