"""Ladders and their messages."""

from shaperouter.v1 import model_pb2
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.routing.ladders import EncoderLadders, Ladders, LaneLadders


def ladders_to_message(ladders: Ladders) -> model_pb2.Ladders:
    """The message of ladders."""
    message = model_pb2.Ladders(
        prefill_lengths=ladders.prefill_lengths.rungs,
        prefill_rows=ladders.prefill_rows.rungs,
        prefill_batch_tokens=ladders.prefill_batch_tokens,
        prefill_piece=ladders.prefill_piece,
        lanes=[
            model_pb2.LaneLadders(
                beams=lane.beams,
                decode_rows=lane.decode_rows.rungs,
                decode_lengths=lane.decode_lengths.rungs,
            )
            for lane in ladders.lanes
        ],
    )
    encoder = ladders.encoder
    if encoder is not None:
        message.encode_lengths.extend(encoder.lengths.rungs)
        message.encode_rows.extend(encoder.rows.rungs)
        message.encode_batch_tokens = encoder.batch_tokens
        message.has_whole_source = encoder.has_whole_source
        if encoder.align_lengths is not None:
            message.align_lengths.extend(encoder.align_lengths.rungs)
    return message


def ladders_from_message(message: model_pb2.Ladders) -> Ladders:
    """The ladders of a message."""
    return Ladders(
        prefill_lengths=Ladder(tuple(message.prefill_lengths)),
        prefill_rows=Ladder(tuple(message.prefill_rows)),
        prefill_batch_tokens=message.prefill_batch_tokens,
        prefill_piece=message.prefill_piece,
        lanes=tuple(
            LaneLadders(
                beams=lane.beams,
                decode_rows=Ladder(tuple(lane.decode_rows)),
                decode_lengths=Ladder(tuple(lane.decode_lengths)),
            )
            for lane in message.lanes
        ),
        encoder=EncoderLadders(
            lengths=Ladder(tuple(message.encode_lengths)),
            rows=Ladder(tuple(message.encode_rows)),
            batch_tokens=message.encode_batch_tokens,
            has_whole_source=message.has_whole_source,
            align_lengths=Ladder(tuple(message.align_lengths)) if message.align_lengths else None,
        )
        if message.encode_lengths
        else None,
    )
