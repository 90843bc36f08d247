"""The door of the Open Inference Protocol v2 with Triton's additions, over gRPC and HTTP."""
