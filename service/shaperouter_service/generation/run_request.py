"""Request of a router to a worker: one run, with every default resolved."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from shaperouter_service.generation.resolution import Resolved


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
class TranscriptConstraints:
    """Rules for the tokens of a transcript, by token id.

    Attributes:
        first_timestamp: The timestamp of 0 s; all ids from it on are timestamps. None: there are no
            rules about timestamps.
        last_initial_timestamp: The largest timestamp that may come first.
        begin_suppressed: Tokens that may not come first.
        min_first_token: The smallest id that may come first; None: there is no such rule.
        max_first_token: The largest id that may come first, with `min_first_token`.
        no_speech: The token whose probability is the probability that nobody speaks; None: it is
            not requested.
        no_speech_position: Position in the prompt of the token that it would follow.
    """

    first_timestamp: int | None = None
    last_initial_timestamp: int = 0
    begin_suppressed: Sequence[int] = ()
    min_first_token: int | None = None
    max_first_token: int = 0
    no_speech: int | None = None
    no_speech_position: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """One sequence to generate, or one beam search.

    Attributes:
        request_id: Id of the request, for logs.
        model: Name of the model.
        token_ids: The prompt. If the model has an encoder, the decoder's, with its start token.
        options: How to generate, by name; see `resolution`.
        client: The client, for fairness between waiting clients.
        prefix_scope: Runs share cached prefixes only if their scopes are equal.
        source_token_ids: What a text encoder reads; empty without one.
        sound: Input of the speech encoder; None if the model has none.
        constraints: Rules for the tokens of a transcript; None for models that make none.
        grammar: What the text must follow, as llguidance reads it; empty for any text.
        continues_text: Whether the new text continues that of the prompt, so that it keeps a space
            at its beginning.
        align_after: Find the times of the prompt's tokens after this many, instead of generating
            new ones; None generates.
        tokens_interval_seconds: Minimum time between two events of tokens after the first; 0 sends
            each chunk at once.
        generated_token_ids: Tokens that another worker has generated for this run, which continues
            after them. Empty with beam search, which starts again.
        scored_tokens: Number of log-probabilities of the prompt that another worker has sent.
        lane_beams: Beam width of the lane to run in; 0 means the narrowest.
        resumed: Whether it had a slot on a worker that was lost.
        suspect: Whether workers died while they computed its next token, so that it must have the
            device to itself.
        revision: Digest of the model's files that have generated its tokens so far; empty for any.
        expected_tokens: New tokens that it is expected to take, for routing; 0 for all that it may.
    """

    request_id: str = ""
    model: str
    token_ids: Sequence[int]
    options: Resolved
    client: str = ""
    prefix_scope: str = ""
    source_token_ids: Sequence[int] = ()
    sound: Sound | None = None
    constraints: TranscriptConstraints | None = None
    grammar: str = ""
    continues_text: bool = False
    align_after: int | None = None
    tokens_interval_seconds: float = 0.0
    generated_token_ids: Sequence[int] = ()
    scored_tokens: int = 0
    lane_beams: int = 0
    resumed: bool = False
    suspect: bool = False
    revision: str = ""
    expected_tokens: int = 0
