"""What the gRPC servers of router and worker share: errors as statuses, and limits."""
