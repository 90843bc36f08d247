"""The worker: a gRPC server that runs requests in lanes of slots on one device."""
