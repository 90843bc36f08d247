"""Signatures: which shape covers which, and their messages."""

from hypothesis import given
from hypothesis import strategies as st

from shaperouter.v1 import signature_pb2
from shaperouter_service.routing.signatures import GraphKind, Signature
from shaperouter_service.wire.signatures import signature_from_message, signature_to_message

# Few values of each dimension, so that pairs often cover one another.
SIGNATURES = st.builds(
    Signature,
    model=st.sampled_from(["gpt2", "demo"]),
    kind=st.sampled_from(GraphKind),
    beams=st.integers(1, 2),
    rows=st.integers(1, 3),
    length=st.sampled_from([16, 64, 256]),
)
SIZES = st.tuples(st.integers(1, 256), st.integers(1, 8192))


def shape(rows: int, length: int) -> Signature:
    return Signature(model="gpt2", kind=GraphKind.DECODE, beams=1, rows=rows, length=length)


@given(SIGNATURES)
def test_a_signature_covers_itself(signature: Signature) -> None:
    assert signature.covers(signature)


@given(SIZES, SIZES, SIZES)
def test_covering_is_transitive(
    first: tuple[int, int], growth: tuple[int, int], more: tuple[int, int]
) -> None:
    small = shape(*first)
    middle = shape(small.rows + growth[0], small.length + growth[1])
    large = shape(middle.rows + more[0], middle.length + more[1])
    assert middle.covers(small)
    assert large.covers(middle)
    assert large.covers(small)


@given(SIGNATURES, SIGNATURES, SIGNATURES)
def test_what_covers_a_cover_covers_what_it_covers(
    a: Signature, b: Signature, c: Signature
) -> None:
    assert not (a.covers(b) and b.covers(c)) or a.covers(c)


@given(SIGNATURES, SIGNATURES)
def test_two_that_cover_each_other_are_equal(a: Signature, b: Signature) -> None:
    assert (a.covers(b) and b.covers(a)) == (a == b)


@given(SIGNATURES, SIGNATURES)
def test_nothing_covers_another_model_kind_or_beam_width(a: Signature, b: Signature) -> None:
    alike = (a.model, a.kind, a.beams) == (b.model, b.kind, b.beams)
    assert alike or not a.covers(b)


@given(SIGNATURES, SIGNATURES)
def test_a_cover_is_never_cheaper(a: Signature, b: Signature) -> None:
    assert not a.covers(b) or a.cost_order >= b.cost_order


def test_more_rows_do_not_make_up_for_a_shorter_length() -> None:
    assert not shape(8, 64).covers(shape(1, 128))
    assert not shape(1, 128).covers(shape(8, 64))


@given(SIGNATURES)
def test_a_message_carries_all_of_a_signature(signature: Signature) -> None:
    message = signature_to_message(signature)
    received = signature_pb2.Signature.FromString(message.SerializeToString())
    assert signature_from_message(received) == signature


def test_every_kind_has_a_message() -> None:
    kinds = {
        signature_to_message(Signature(model="m", kind=kind, beams=1, rows=1, length=16)).kind
        for kind in GraphKind
    }
    named = set(signature_pb2.GraphKind.values()) - {signature_pb2.GRAPH_KIND_UNSPECIFIED}
    assert kinds == named


def test_the_short_form_names_model_kind_and_shape() -> None:
    assert str(shape(4, 256)) == "gpt2 decode 4x256"
    wide = Signature(model="gpt2", kind=GraphKind.PREFILL, beams=3, rows=1, length=16)
    assert str(wide) == "gpt2 prefill 1x16 beams 3"
