"""Real weights on real speech: Whisper tiny.en, what espeak-ng says, and another implementation."""
