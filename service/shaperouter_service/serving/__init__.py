"""The core of a router: a request as a value comes in, its events as values go out."""
