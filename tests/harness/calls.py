"""Calls, and the records of their requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from shaperouter_service.serving.call import Call
from shaperouter_service.serving.refusal_log import RefusalLog
from shaperouter_service.serving.request_record import RequestRecorder
from shaperouter_service.telemetry.refusals import RefusalMetrics
from shaperouter_service.telemetry.requests import RequestMetrics


def a_call() -> Call:
    return Call(request_id="request-7", method="package.Service/Method", peer="unix:", client="c")


def recorder_of(registry: CollectorRegistry, *models: str) -> RequestRecorder:
    return RequestRecorder(
        metrics=RequestMetrics(registry, models), refusals=RefusalLog(RefusalMetrics(registry))
    )
