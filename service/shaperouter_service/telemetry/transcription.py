"""How much was transcribed, and how fast."""

from prometheus_client import CollectorRegistry, Counter, Histogram

# Seconds of work for a second of sound: from a tiny model on a GPU to one that is left behind by
# who speaks.
_FACTOR_BOUNDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 5)


class TranscriptionMetrics:
    """The metrics that are made of transcriptions, for one router."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Registers them."""
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
        """A recording was transcribed to its end.

        Args:
            model: Name of the model.
            audio_seconds: Length of the recording.
            seconds: Time that its windows took.
        """
        self._audio.labels(model).inc(audio_seconds)
        if audio_seconds > 0:
            self._factor.labels(model).observe(seconds / audio_seconds)
