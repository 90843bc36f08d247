"""What a router asks of a worker: one run, with every default resolved."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shaperouter.v1 import worker_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sound:
    """A window of a recording.

    Attributes:
        samples: Little-endian 32-bit floats: the peak of the recording's spectrogram, the number
            of the window's frames that belong to the recording, and the samples of the window and
            around it; see `speech.audio.spectrum`.
        positions: Positions of the encoder's output that belong to the recording.
    """

    samples: bytes = field(repr=False)
    positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One sequence to generate, or one beam search.

    Attributes:
        request_id: Id of the request, for logs.
        model: Name of the model.
        token_ids: The prompt. If the model has an encoder, the decoder's, with its start token.
        options: How to generate.
        client: The client, for fairness between waiting clients.
        source_token_ids: What a text encoder reads; empty without one.
        sound: What a speech encoder reads; None without one.
        align_after: Find the times of the prompt's tokens after this many, instead of generating
            new ones; None generates.
        tokens_interval_seconds: Minimum time between two events of tokens after the first; 0 sends
            each chunk at once.
        generated_token_ids: Tokens that another worker has generated for this run, which continues
            after them. Empty with beam search, which starts again.
        lane_beams: Beam width of the lane to run in; 0 means the narrowest.
        resumed: Whether it had a slot on a worker that was lost.
        suspect: Whether workers died while they computed its next token, so that it must have the
            device to itself.
    """

    request_id: str = ""
    model: str
    token_ids: Sequence[int]
    options: worker_pb2.RunOptions
    client: str = ""
    source_token_ids: Sequence[int] = ()
    sound: Sound | None = None
    align_after: int | None = None
    tokens_interval_seconds: float = 0.0
    generated_token_ids: Sequence[int] = ()
    lane_beams: int = 0
    resumed: bool = False
    suspect: bool = False
