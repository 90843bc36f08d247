"""The gRPC face of the protocol."""
