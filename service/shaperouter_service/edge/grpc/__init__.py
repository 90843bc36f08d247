"""The gRPC services of `shaperouter.v1`, one module each."""
