"""What probes of every door say, as load balancers, clients and platforms send them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import grpc
import httpx2 as httpx
from grpc_health.v1 import health_pb2, health_pb2_grpc

from shaperouter_service.edge.inference.stubs import grpc_service_pb2, grpc_service_pb2_grpc

GRPC_PORT, HTTP_PORT = 50051, 8000

# Seconds that a probe waits for its answer.
PATIENCE = 5.0


@dataclass(frozen=True, kw_only=True)
class Doors:
    """The doors of one router.

    Attributes:
        address: Its IP address.
        name: Name in its certificate.
        ca: File of the authority that callers trust.
        token: A client's token.
    """

    address: str
    name: str
    ca: Path
    token: str

    def alive(self) -> Mapping[str, bool]:
        """Whether each door says that the process is alive."""
        return {
            "grpc.health.v1 liveness": self._health("liveness"),
            "gRPC ServerLive": self._triton(
                lambda stub: (
                    stub.ServerLive(grpc_service_pb2.ServerLiveRequest(), **self._call).live
                )
            ),
            "GET /v2/health/live": self._get("/v2/health/live"),
        }

    def ready(self) -> Mapping[str, bool]:
        """Whether each door says that requests should come."""
        return {
            "grpc.health.v1": self._health(""),
            "grpc.health.v1 readiness": self._health("readiness"),
            "gRPC ServerReady": self._triton(
                lambda stub: (
                    stub.ServerReady(grpc_service_pb2.ServerReadyRequest(), **self._call).ready
                )
            ),
            "GET /health": self._get("/health"),
            "GET /v2/health/ready": self._get("/v2/health/ready"),
        }

    @property
    def _call(self) -> Mapping[str, object]:
        return {"timeout": PATIENCE, "metadata": (("authorization", f"Bearer {self.token}"),)}

    def _channel(self) -> grpc.Channel:
        return grpc.secure_channel(
            f"{self.address}:{GRPC_PORT}",
            grpc.ssl_channel_credentials(self.ca.read_bytes()),
            options=[("grpc.ssl_target_name_override", self.name)],
        )

    def _health(self, service: str) -> bool:
        with self._channel() as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = health_pb2_grpc.HealthStub(channel).Check(request, timeout=PATIENCE)
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def _triton(
        self, ask: Callable[[grpc_service_pb2_grpc.GRPCInferenceServiceStub], bool]
    ) -> bool:
        with self._channel() as channel:
            return ask(grpc_service_pb2_grpc.GRPCInferenceServiceStub(channel))

    def _get(self, path: str) -> bool:
        context = ssl.create_default_context(cafile=self.ca)
        with httpx.Client(verify=context, timeout=PATIENCE) as client:
            response = client.get(
                f"https://{self.address}:{HTTP_PORT}{path}",
                headers={"host": self.name},
                extensions={"sni_hostname": self.name},
            )
        return response.status_code == httpx.codes.OK
