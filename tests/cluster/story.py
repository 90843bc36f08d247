"""The day's chapters: their titles, and their checks, which query Prometheus."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator

from cluster.prometheus import Prometheus

# Seconds that something may take to show: a start, a compilation, what an alert waits for.
PATIENCE = 120.0

FIRING = 'ALERTS{alertstate="firing"}'


class Story:
    """Tells the day in plain words, as it happens."""

    def __init__(self, prometheus: Prometheus) -> None:
        """Begins now.

        Args:
            prometheus: What is asked.
        """
        self.prometheus = prometheus
        self._began = time.time()
        self._title = ""

    @contextlib.contextmanager
    def chapter(
        self,
        title: str,
        *,
        fire: Collection[str] = (),
        may_fire: Collection[str] = (),
        requests_fail: bool = False,
    ) -> Iterator[None]:
        """A chapter, during which users must notice nothing.

        Args:
            title: What happens.
            fire: The alerts that must fire meanwhile.
            may_fire: Alerts that may fire, too. No others may, but those that still do from before.
            requests_fail: Whether nothing is left that could answer users.

        Raises:
            AssertionError: A request failed or was answered wrongly, or alerts are not as they
                should be.
        """
        print(f"\n{title}", flush=True)
        began, before = time.time(), self._alerts(FIRING)
        yield
        if not requests_fail:
            self.check("no request failed", 'sum(caller_requests_total{result="failed"}) == 0')
        self.check("no answer changed", 'sum(caller_requests_total{result="wrong"}) == 0')
        seconds = max(1, round(time.time() - began))
        fired = self._alerts(f"max_over_time({FIRING}[{seconds}s])") - before
        self.say(f"alerts: {', '.join(sorted(fired)) or 'none'}")
        missing, unexpected = set(fire) - fired, fired - set(fire) - set(may_fire)
        assert not missing, f"these alerts should have fired: {sorted(missing)}"
        assert not unexpected, f"these alerts should not have fired: {sorted(unexpected)}"

    def say(self, text: str) -> None:
        """Tells something."""
        minutes, seconds = divmod(round(time.time() - self._began), 60)
        print(f"  {minutes:2}:{seconds:02}  {text}", flush=True)

    def check(self, what: str, expression: str) -> None:
        """Asserts that a comparison holds now, and says so."""
        assert self.prometheus.holds(expression), f"not so: {what} ({expression})"
        self.say(what)

    def wait(self, what: str, expression: str, *, patience: float = PATIENCE) -> None:
        """Waits until a comparison holds, and says so."""
        self.prometheus.wait_until(expression, timeout=patience)
        self.say(what)

    def wait_for_alert(self, name: str) -> None:
        """Waits until an alert fires."""
        self.wait(f"{name} fires", f'ALERTS{{alertname="{name}",alertstate="firing"}}')

    def _alerts(self, expression: str) -> set[str]:
        return {str(each["metric"]["alertname"]) for each in self.prometheus.ask(expression)}
