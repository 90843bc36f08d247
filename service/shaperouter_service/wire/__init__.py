"""Translation between messages of the protocol and values of the service."""
