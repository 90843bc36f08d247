"""Records of traffic, drawn at random."""

from hypothesis import strategies as st

from shaperouter_service.routing.decay import HALF_LIFE
from shaperouter_service.routing.ladders import Ladders
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.routing.traffic import SignatureTraffic, Traffic

MODEL = "gpt2"
# A day in November 2026, in Unix time.
TODAY = 1_795_300_000.0

_COUNTS = st.integers(0, 1000).map(float)
_SECONDS = st.floats(0, 1e4)

LADDERS = st.builds(
    Ladders.default,
    max_length=st.sampled_from([100, 128, 1024]),
    slots=st.sampled_from([1, 8]),
    max_source_length=st.sampled_from([0, 128]),
)


@st.composite
def traffics(draw: st.DrawFn, model: str = MODEL) -> Traffic:
    """Random traffic of some weeks around TODAY."""
    ladders = draw(LADDERS)
    signatures = st.sampled_from(ladders.signatures(model))
    counts = st.builds(
        SignatureTraffic,
        asked=_COUNTS,
        calls=_COUNTS,
        steps=_COUNTS,
        device_seconds=_SECONDS,
        missed_seconds=_SECONDS,
        compiles=_COUNTS,
        compile_seconds=_SECONDS,
        last_used=st.floats(0, TODAY),
    )
    return Traffic(
        model=model,
        ladders=ladders,
        as_of=TODAY + draw(st.floats(-5, 5)) * HALF_LIFE,
        seconds=draw(_SECONDS),
        prompts=draw(st.dictionaries(st.integers(1, 100), _COUNTS, max_size=5)),
        runs=draw(
            st.dictionaries(
                st.tuples(st.sampled_from([1, 2, 4, 8]), st.integers(1, 100)), _COUNTS, max_size=5
            )
        ),
        signatures=draw(st.dictionaries(signatures, counts, max_size=5)),
        sources=draw(st.dictionaries(st.integers(1, 100), _COUNTS, max_size=5)),
        sizes=draw(
            st.dictionaries(
                st.tuples(st.sampled_from(["batch", "length"]), st.integers(1, 100)),
                _COUNTS,
                max_size=5,
            )
        ),
    )


def encode(rows: int, length: int, model: str = MODEL) -> Signature:
    return Signature(model=model, kind=GraphKind.ENCODE, beams=1, rows=rows, length=length)


def prefill(rows: int, length: int, model: str = MODEL) -> Signature:
    return Signature(model=model, kind=GraphKind.PREFILL, beams=1, rows=rows, length=length)


def decode(rows: int, length: int, *, beams: int = 1, model: str = MODEL) -> Signature:
    return Signature(model=model, kind=GraphKind.DECODE, beams=beams, rows=rows, length=length)


def call(rows: int, length: int, model: str = MODEL) -> Signature:
    return Signature(model=model, kind=GraphKind.CALL, rows=rows, length=length)
