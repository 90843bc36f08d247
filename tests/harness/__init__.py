"""Code that tests share: engines in this process, and the service as real processes."""
