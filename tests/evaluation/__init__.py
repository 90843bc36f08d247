"""Evaluations of the embedded model by lm-eval, over HTTP and without the service."""
