"""A rehearsal of a day in production: two routers, three workers, and users throughout.

The processes are those of deploy/kubernetes, with its arguments, variables and ports, each on a
host of its own and found by a DNS name; Prometheus has the rules of deploy/, for which the day
passes ten times as fast. The checks query Prometheus; above all, users must notice nothing.

Read `day`, and then its chapters in that order. All output is in build/cluster.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from cluster.callers import DIGITS
from cluster.pods import PodEndedError
from cluster.production import MODEL, NAME, RARE, Production
from cluster.story import FIRING, Story
from cluster.version_before import VersionBefore
from cluster.workloads import at_once
from harness.waiting import wait_until
from shaperouter import Client, GraphState

# What shaperouterd exits with if an option or a model is wrong: sysexits.h EX_CONFIG.
EXIT_CONFIG = 78

# All graphs that users' requests ask for: two lengths, with one row and with two.
GRAPHS = [
    f"small {graph}"
    for graph in (
        "prefill 1x16",
        "prefill 2x16",
        "decode 1x64",
        "decode 2x64",
        "decode 1x128",
        "decode 2x128",
        "decode 1x256 beams 4",
        "decode 1x512 beams 4",
    )
]

# Maximum number of workers to kill until one had requests at that moment. Seconds
# until its counts have been scraped.
KILLS, SCRAPED = 4, 15.0

ABSENT, MISSES = "ShaperouterAbsent", "ShaperouterCacheMisses"
LOST, DOWN, RESTARTS = "ShaperouterWorkersLost", "ShaperouterDown", "ShaperouterRestarts"
NO_WORKERS = "ShaperouterNoWorkers"
# What may follow an outage, as long as those who waited are not all answered.
AFTERMATH = {RESTARTS, "ShaperouterSlowFirstToken", "ShaperouterLongQueue", "ShaperouterErrors"}


def day(production: Production, story: Story, before: VersionBefore) -> None:
    """From the first start to the night.

    Args:
        production: All that runs.
        story: Tells it.
        before: The version before this one.
    """
    first_start(production, story)
    began = time.time()
    rolling_restart(production, story)
    more_workers_and_fewer(production, story)
    lost_worker(production, story)
    rotated_certificates(production, story)
    damaged_checkpoint(production, story)
    cut_network(production, story)
    new_revision(production, story)
    rare_model(production, story)
    evening(story, began)
    two_versions(production, story, before)
    every_worker_lost(production, story)
    every_router_lost(production, story)


def first_start(production: Production, story: Story) -> None:
    title = "In the morning all is new, and nothing is compiled."
    with story.chapter(title, fire={ABSENT, MISSES}):
        production.workers.scale(3)
        story.say("three workers are ready, on an empty cache")
        # So it is until there is a router.
        story.wait_for_alert(ABSENT)
        production.routers.scale(2)
        story.say("two routers are ready, which found them by name")
        story.wait("each router has all three", "min(shaperouter_workers) == 3")
        check_doors(production, ready=True)
        story.say("every door of each router says that it is alive and ready")
        with production.operator() as client:
            first, *_ = {graph.worker for graph in client.graphs()}
            warm(client, workers=[first])
            story.say(f"the operator has warmed {len(GRAPHS)} graphs on {first}")
            warm(client, all_workers=True)
            story.say("the others have loaded them")
        # So it is on a first start.
        story.wait_for_alert(MISSES)
        production.begin_calls()
        story.wait(
            "every kind of request was answered",
            'min(sum by (kind) (caller_requests_total{result="answered"})) > 20',
        )


def warm(client: Client, **where: Any) -> None:
    """Warms the graphs, as `shaperouter warm` does."""
    with client.warm_graphs(GRAPHS, **where) as steps:
        *_, graphs = steps
    failed = [str(graph.signature) for graph in graphs if graph.state != GraphState.READY]
    assert not failed, f"not made: {failed}"


def check_doors(production: Production, *, ready: bool) -> None:
    """Probes every door of each router, which is alive in any case."""
    for doors in production.doors():
        wrong = [probe for probe, holds in doors.alive().items() if not holds]
        assert not wrong, f"{doors.address} is said not to be alive by {wrong}"
        wrong = [probe for probe, holds in doors.ready().items() if holds != ready]
        assert not wrong, f"{doors.address} is said to be ready={not ready} by {wrong}"


def rolling_restart(production: Production, story: Story) -> None:
    with story.chapter("A new version: routers and workers are replaced, one after the other."):
        production.roll(MODEL)
        story.say("all have drained, and their successors are ready")
        story.wait("each router has three workers", "min(shaperouter_workers) == 3")
        story.check("there are two routers", 'count(shaperouter_build_info{role="router"}) == 2')
        story.check(
            "the new workers loaded their graphs instead of compiling them",
            'sum(shaperouter_graph_compiles_total{result="loaded"}) >= 6 '
            'and sum(shaperouter_graph_compiles_total{result="compiled"}) == 0',
        )


def more_workers_and_fewer(production: Production, story: Story) -> None:
    with story.chapter("At noon there are five workers, and in the afternoon two."):
        production.workers.scale(5)
        story.wait("each router has five", "min(shaperouter_workers) == 5")
        # They are ready with their first graphs, and Prometheus reads their metrics a little later.
        story.wait(
            "the new ones have loaded what the others made",
            'count(sum by (instance) (shaperouter_graph_compiles_total{result="loaded"}) > 2) == 5',
        )
        story.check(
            "they compiled nothing", 'sum(shaperouter_graph_compiles_total{result="compiled"}) == 0'
        )
        production.workers.scale(2)
        story.wait("each router has two", "max(shaperouter_workers) == 2")


def lost_worker(production: Production, story: Story) -> None:
    with story.chapter(
        "A worker's machine dies without a word, with requests on it.",
        fire={LOST, DOWN},
        # A worker that dies more than once starts again and again.
        may_fire={RESTARTS},
    ):
        went_on = 'sum(shaperouter_runs_resumed_total{reason="lost"}) > 0'
        for _ in range(KILLS):
            lost = production.busy_worker()
            # Requests are short: one that is running now would end before the kill.
            lost.freeze()
            calls = story.prometheus.value("sum(caller_requests_total)")
            # If all callers wait for the frozen worker, it has requests, too.
            with contextlib.suppress(TimeoutError):
                story.prometheus.wait_until(f"sum(caller_requests_total) > {calls + 10}", timeout=5)
            lost.kill()
            story.say(f"{lost.name} is gone")
            story.wait_for_alert(LOST)
            with contextlib.suppress(TimeoutError):
                story.wait("its requests continued elsewhere", went_on, patience=SCRAPED)
                break
            story.say("but what ran on it had just ended")
            lost.restart()
            lost.wait_until_ready()
        else:
            raise AssertionError(f"not so in {KILLS} attempts: {went_on}")
        story.wait_for_alert(DOWN)
        lost.restart()
        lost.wait_until_ready()
        story.wait("it is back, and each router has two", "min(shaperouter_workers) == 2")


def rotated_certificates(production: Production, story: Story) -> None:
    with story.chapter("Certificates are renewed, and inside of the cluster their authority, too."):
        before = production.served_certificates()
        production.rotate_certificates()
        after = production.served_certificates()
        assert before.keys() == after.keys()
        assert not set(before.values()) & set(after.values()), "a pod shows its old certificate"
        story.say("every pod shows its new certificate to new connections")


def damaged_checkpoint(production: Production, story: Story) -> None:
    workers = production.workers
    with story.chapter(
        "A new version of the model is rolled out, of which half has arrived.", fire={DOWN}
    ):
        model = production.damage_checkpoint()
        try:
            workers.roll(production.kustomization.apply(model)[workers.name])
        except PodEndedError as error:
            story.say(f"the rollout stops: {error}")
        refused = workers.pods[-1]
        assert refused.exit_code == EXIT_CONFIG, f"{refused.name} did not refuse the checkpoint"
        assert "small-v2" in refused.log, f"{refused.name} does not say which checkpoint is damaged"
        story.wait_for_alert(DOWN)
        story.check("the other worker serves on", "min(shaperouter_workers) == 1")
        workers.roll_back(production.kustomization.apply(MODEL)[workers.name])
        story.wait("it is rolled back, and each router has two", "min(shaperouter_workers) == 2")


def cut_network(production: Production, story: Story) -> None:
    # What still fires at the beginning of a chapter is not counted in it.
    story.wait("what fired before has ended", f"absent({FIRING})")
    with story.chapter(
        "The network to a worker is cut without a word, with requests on it.", fire={LOST, DOWN}
    ):
        lonely = production.busy_worker()
        lonely.cut()
        story.say(f"{lonely.name} is cut off")
        story.wait_for_alert(LOST)
        story.wait_for_alert(DOWN)
        lonely.mend()
        story.wait("it is mended, and each router has two", "min(shaperouter_workers) == 2")


def evening(story: Story, began: float) -> None:
    """Checks of the whole day.

    Args:
        story: That of the day.
        began: When everything was compiled, in seconds since 1970.
    """
    with story.chapter("In the evening all is quiet."):
        story.wait("no alert fires", f"absent({FIRING})")
        story.check(
            "since the morning, fewer than one request of a hundred waited for a compilation",
            f"sum(caller_stalled_total - caller_stalled_total @ {began:.0f}) < 0.01 * "
            f"sum(caller_requests_total - caller_requests_total @ {began:.0f})",
        )
        story.check(
            "no user waited longer than half a minute", "caller_longest_request_seconds < 30"
        )
        story.check(
            "the service itself counted no failure",
            'sum(max_over_time(shaperouter_requests_total{code!~"OK|CANCELLED"}[1h])) == 0',
        )


def new_revision(production: Production, story: Story) -> None:
    title = (
        "A new revision is loaded while users call: tried on a share, promoted, and rolled back."
    )
    with story.chapter(title), production.operator() as client:
        old = client.load_model(NAME, NAME).revision[:DIGITS]
        new_one = production.new_checkpoint()
        canary = client.load_model(NAME, new_one, share=0.2)
        # What workers were started with has no digits.
        (new,) = {target.partition("@")[2] for target in canary.targets} - {old, ""}
        story.wait("a fifth of the users' requests get it", f"{answers(new)} > 0")
        story.check("the others do not", f"{answers(old)} > 0")
        client.load_model(NAME, new_one)
        story.wait("all requests get it", f"{answers(old)} == 0 and {answers(new)} > 0")
        client.load_model(NAME, NAME)
        story.wait("none gets it any more", f"{answers(new)} == 0 and {answers(old)} > 0")
        story.wait(
            "and its memory is free again",
            f'absent(shaperouter_weight_bytes{{model="{NAME}@{new}"}})',
        )


def answers(revision: str) -> str:
    """The rate of answers of a revision."""
    return f'sum(rate(caller_answers_total{{revision="{revision}"}}[5s]))'


def rare_model(production: Production, story: Story) -> None:
    with (
        story.chapter("A request names a model that nobody has loaded."),
        production.operator() as client,
    ):
        names = {model.name for model in client.models()}
        assert RARE not in names, f"it is among {sorted(names)}"
        client.generate([1, 2, 3], model=RARE, max_new_tokens=4)
        story.say("it was loaded, and the request was answered")
        story.wait(
            "nobody uses it, and it is unloaded",
            f'sum(shaperouter_model_changes_total{{model="{RARE}",result="idle"}}) > 0',
        )


def two_versions(production: Production, story: Story, before: VersionBefore) -> None:
    title = (
        f"Routers, workers and clients are of this version and of the one before, {before.commit}."
    )
    # Workers of the version before may report ready before they have what was loaded while the
    # service ran. Rolling them out may then leave the model without a worker for a while.
    with story.chapter(title, may_fire={MISSES, NO_WORKERS}):
        production.begin_calls(before)
        story.say("clients of the version before call, too")
        templates = production.kustomization.apply(MODEL)
        routers, workers = production.routers, production.workers
        routers.roll(before.of(templates[routers.name]))
        story.wait("routers of the version before have workers of this one", TWO)
        answered(story)
        routers.roll(templates[routers.name])
        workers.roll(before.of(templates[workers.name]))
        story.wait("routers of this version have workers of the one before", TWO)
        answered(story)
        workers.roll(templates[workers.name])
        story.wait("all are of this version again", TWO)
        answered(story)


TWO = "min(shaperouter_workers) == 2 and max(shaperouter_workers) == 2"


def answered(story: Story) -> None:
    """Waits until users of each kind have been answered lately."""
    story.wait(
        "users are answered",
        'min(sum by (kind) (rate(caller_requests_total{result="answered"}[5s]))) > 0',
    )


def every_worker_lost(production: Production, story: Story) -> None:
    with story.chapter(
        "At night every worker dies at the same moment.",
        fire={LOST, DOWN, NO_WORKERS},
        may_fire=AFTERMATH,
    ):
        pods = production.workers.pods
        for pod in pods:
            pod.kill()
        story.wait_for_alert(NO_WORKERS)
        story.wait_for_alert(DOWN)
        check_doors(production, ready=False)
        story.say(
            "every door of each router says that it is alive, and that no request should come"
        )
        for pod in pods:
            pod.restart()
        at_once(*(pod.wait_until_ready for pod in pods))
        story.wait("they are back", TWO)
        answered(story)
        wait_until(lambda: all(all(doors.ready().values()) for doors in production.doors()))
        story.say("every door of each router says that it is ready again")


def every_router_lost(production: Production, story: Story) -> None:
    with story.chapter(
        "Then every router dies, too, and nothing is left that could answer.",
        fire={ABSENT, DOWN},
        may_fire={*AFTERMATH, LOST, NO_WORKERS},
        requests_fail=True,
    ):
        pods = production.routers.pods
        for pod in pods:
            pod.kill()
        story.wait_for_alert(ABSENT)
        story.wait_for_alert(DOWN)
        for pod in pods:
            pod.restart()
        at_once(*(pod.wait_until_ready for pod in pods))
        story.wait("they are back", TWO)
        answered(story)
        story.wait("and no alert fires any more", f"absent({FIRING})")
