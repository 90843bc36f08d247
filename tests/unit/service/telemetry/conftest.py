"""Worker metrics of a test."""

from __future__ import annotations

import pytest

from harness.worker_metrics import Scraped


@pytest.fixture
def scraped() -> Scraped:
    """Metrics of no workers yet."""
    return Scraped()
