"""A transcription service that plays a script: a real gRPC server in this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent import futures

import grpc

from harness.waiting import TIMEOUT
from shaperouter.v1 import (
    generation_pb2,
    signature_pb2,
    transcription_pb2,
    transcription_pb2_grpc,
)

Event = transcription_pb2.TranscribeStreamResponse
SIGNATURE = signature_pb2.Signature(
    model="whisper", kind=signature_pb2.GRAPH_KIND_ENCODE, rows=1, length=1500, beams=1
)


def segment(text: str, start: float) -> transcription_pb2.TranscribedSegment:
    word = transcription_pb2.TranscribedWord(
        text=text, start_seconds=start, end_seconds=start + 1, probability=0.5
    )
    return transcription_pb2.TranscribedSegment(
        start_seconds=start, end_seconds=start + 1, text=text, token_ids=[1, 2], words=[word]
    )


COMPLETION = transcription_pb2.TranscriptionCompletion(
    request_id="req-7",
    model="whisper",
    language=transcription_pb2.DetectedLanguage(code="en", probability=0.75),
    audio_seconds=4.0,
    total_seconds=1.0,
    device_seconds=0.5,
    seed=7,
    graphs=[generation_pb2.GraphUse(asked=SIGNATURE, served=SIGNATURE, calls=1)],
)
SEGMENTS = [segment(" Hello", 0.0), segment(" there.", 2.0)]


class FakeTranscriber(transcription_pb2_grpc.TranscriptionServiceServicer):
    """Keeps its requests and answers with two segments."""

    def __init__(self) -> None:
        self.unary: list[transcription_pb2.TranscribeRequest] = []
        self.starts: list[transcription_pb2.TranscribeStreamStart] = []
        self.pieces: list[bytes] = []
        self.heard = threading.Event()  # the first piece has come
        self.losses = 0  # of the next streams, after their first segment
        self.left: list[float] = []  # seconds of each stream
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
        transcription_pb2_grpc.add_TranscriptionServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self) -> None:
        self._server.stop(None).wait(TIMEOUT)

    def Transcribe(  # noqa: N802 (gRPC's name)
        self, request: transcription_pb2.TranscribeRequest, context: grpc.ServicerContext
    ) -> transcription_pb2.TranscribeResponse:
        del context
        self.unary.append(request)
        return transcription_pb2.TranscribeResponse(segments=SEGMENTS, completion=COMPLETION)

    def TranscribeStream(  # noqa: N802 (gRPC's name)
        self,
        requests: Iterator[transcription_pb2.TranscribeStreamRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[Event]:
        self.left.append(context.time_remaining())
        self.starts.append(next(requests).start)
        self.pieces.clear()
        yield Event(stall=generation_pb2.Stall(signature=SIGNATURE))
        yield Event(language=COMPLETION.language)
        for request in requests:
            if not self.pieces:
                yield Event(segment=SEGMENTS[0])
                if len(self.starts) <= self.losses:
                    context.abort(grpc.StatusCode.UNAVAILABLE, "shutting down")
            self.pieces.append(request.content)
            self.heard.set()
        progress = transcription_pb2.TranscriptionProgress(
            transcribed_seconds=2.0, received_seconds=4.0
        )
        yield Event(progress=progress)
        yield Event(segment=SEGMENTS[1])
        yield Event(completion=COMPLETION)
