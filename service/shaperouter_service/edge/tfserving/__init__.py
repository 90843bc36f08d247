"""The door of TensorFlow Serving's gRPC protocol."""
