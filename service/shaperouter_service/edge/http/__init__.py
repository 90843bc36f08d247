"""The HTTP port of a router: OpenAI's API."""
