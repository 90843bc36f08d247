"""The gRPC edge: one module a service, and the checks of what comes in."""
