"""The door of the Open Inference Protocol v2 over gRPC, with Triton's additions."""
