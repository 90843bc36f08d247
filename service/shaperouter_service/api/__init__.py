"""The gRPC services of the router, one module each, and the validation of requests."""
