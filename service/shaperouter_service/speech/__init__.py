"""Speech: audio files, windows, segments, words and languages."""
