"""OpenAI's API: its requests as those of the core, and the core's answers as OpenAI's."""
