"""The HTTP face of the protocol, with Triton's generate extension."""
