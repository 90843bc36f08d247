"""Limits of recordings."""

# A recording: its file, in bytes; how long it is, which is what memory depends on (64 kB a second);
# and what it may be made of. 8 channels are those of a cinema, 192 kHz those of a studio.
MAX_AUDIO_BYTES = 512 * 2**20
MAX_AUDIO_SECONDS = 2 * 3600
MAX_AUDIO_CHANNELS = 8
MIN_SAMPLE_RATE, MAX_SAMPLE_RATE = 4_000, 192_000
# Samples are from -1 to 1, but some programs write floating-point samples in 16-bit steps.
MAX_SAMPLE = 2.0**15
