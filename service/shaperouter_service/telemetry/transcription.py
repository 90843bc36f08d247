"""Metrics of transcriptions: length of recordings and speed."""

from prometheus_client import CollectorRegistry, Counter, Histogram

# Buckets in seconds of work per second of sound, from a tiny model on a GPU to a model that is
# slower than speech.
_FACTOR_BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 5)


class TranscriptionMetrics:
    """The metrics of one router's transcriptions."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers the metrics."""
        self._audio = Counter(
            "shaperouter_audio_seconds",
            "Length of the recordings that were transcribed completely, in seconds.",
            ["model"],
            registry=registry,
        )
        self._factor = Histogram(
            "shaperouter_real_time_factor",
            "Time that it took to transcribe the windows of a recording, divided by the "
            "recording's length. Only recordings that were transcribed completely. Includes "
            "waiting for slots, but not waiting for sound that has yet to arrive.",
            ["model"],
            buckets=_FACTOR_BOUNDS,
            registry=registry,
        )

    def ended(self, model: str, audio_seconds: float, seconds: float) -> None:
        """Counts a recording that was transcribed completely.

        Args:
            model: Name of the model.
            audio_seconds: Length of the recording.
            seconds: Time that its windows took.
        """
        self._audio.labels(model).inc(audio_seconds)
        if audio_seconds > 0:
            self._factor.labels(model).observe(seconds / audio_seconds)
