"""Limits of recordings."""

# Limits of a recording: bytes of its file; seconds, which decide its memory (64 kB a second);
# channels, as in a cinema; and samples a second, as in a studio.
MAX_AUDIO_BYTES = 512 * 2**20
MAX_AUDIO_SECONDS = 2 * 3600
MAX_AUDIO_CHANNELS = 8
MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 4_000, 192_000
# Samples are from -1 to 1, but some programs write floating-point samples in 16-bit steps.
MAX_SAMPLE = 2.0**15
