"""The steps with runners: one is killed, the next one finishes, and a person mends what no runner can."""

from __future__ import annotations

import time

from sqlalchemy import text
from sqlalchemy.orm import Session

from examples.documents.demo.runner import CONCURRENCY, RunnerProcess
from examples.documents.demo.scene import Scene, Uploaded
from examples.documents.demo.trouble import DemoError, expect
from examples.documents.demo.watch import Counts, watch
from examples.documents.models import Document
from examples.documents.service import ModelUnavailableError
from examples.documents.sources import mistaken
from examples.documents.uploads import replace_content
from sa_jobqueue.admin import redrive

HELD = "SELECT leased_by, count(*) FROM jobqueue_jobs WHERE status = 'running' GROUP BY leased_by"
FAILURES = (
    "SELECT count(*), split_part(entry->>'error', chr(10), 1)"
    " FROM jobqueue_jobs, jsonb_array_elements(errors) AS entry GROUP BY 2 ORDER BY 1 DESC"
)
STARTS = (
    "SELECT count(*), 'jobs with attempts:', attempts FROM jobqueue_jobs GROUP BY attempts ORDER BY attempts"
)
ONE_JOB = "SELECT status, 'after attempt', attempts FROM jobqueue_jobs WHERE id = :id"
WHY_DEAD = "SELECT reason, '-', split_part(last_error, chr(10), 1) FROM jobqueue_jobs WHERE id = :id"
_UNREADABLE = text(
    "SELECT count(*) FROM jobqueue_jobs WHERE status = 'dead' AND last_error LIKE '%MalformedDocumentError%'"
    " AND id <> :id"
)
_BACKENDS = text(
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE application_name = 'sa_jobqueue runner-1' AND datname = current_database() AND state = ANY(:states)"
)
_BUSY, _ANY_STATE = ["active"], ["active", "idle", "idle in transaction"]


def crash(scene: Scene, uploaded: Uploaded) -> int:
    """Kill a runner in the middle of its work; how many jobs it took along."""
    terminal, total = scene.terminal, len(uploaded.jobs)
    # A few documents are all begun at once: then it is now or never.
    some = total // 5 if total > 2 * CONCURRENCY else 0
    busy = max(1, min(CONCURRENCY // 2, total // 4))

    def in_the_middle(counts: Counts) -> bool:
        if not counts.unfinished:
            raise DemoError(f"runner-1 was through before it could be killed: {counts}")
        return counts.done >= some and counts.running >= busy

    terminal.step("Runner 1 is killed while it works")
    with scene.runner("runner-1", uploaded) as runner:
        terminal.say(f"$ {runner.shown_command}")
        while True:
            counts = watch(scene.engine, runner, terminal, until=in_the_middle)
            # Its jobs may all end in this moment: frozen first, it is killed when it surely holds some.
            runner.freeze()
            _wait_for_backends(scene, _BUSY)
            if watch(scene.engine, runner, terminal, until=lambda _: True).running:
                break
            runner.thaw()
        runner.kill()
    _wait_for_backends(scene, _ANY_STATE)
    terminal.say(f"{counts}: kill -9")
    held = {
        str(name): int(count)
        for name, count in terminal.prove("What it still holds, until the lease is over", HELD)
    }
    expect(set(held) == {"runner-1"}, f"runner-1 should hold jobs, and nobody else: {held}")
    return held["runner-1"]


def recover(scene: Scene, runner: RunnerProcess, uploaded: Uploaded, lost: int) -> int:
    """Let the next runner finish; how many documents turned out to hold no text, the mistaken one apart."""
    terminal = scene.terminal
    terminal.step("Runner 2 does the rest; what runner 1 held comes back when its lease is over")
    terminal.say(str(watch(scene.engine, runner, terminal, until=lambda counts: not counts.unfinished)))
    failures = {str(error): int(count) for count, error in terminal.prove("Attempts that failed", FAILURES)}
    rescued = failures.get("runner runner-1 was lost (lease expired)", 0)
    expect(rescued == lost, f"{lost} jobs were lost with runner-1, and {rescued} were rescued")
    if unavailable := sum(
        count for error, count in failures.items() if ModelUnavailableError.__name__ in error
    ):
        terminal.say(
            f"The model service was out of order for {unavailable} of the documents; their jobs waited a while."
        )
    terminal.prove("So there are", STARTS)
    with scene.engine.connect() as connection:
        mistaken_job = uploaded.jobs[uploaded.mistaken]
        return int(connection.execute(_UNREADABLE, {"id": mistaken_job}).scalar_one())


def redrive_corrected(scene: Scene, runner: RunnerProcess, uploaded: Uploaded) -> None:
    """Show the dead job, store the right content, send the job back to work, and see it done."""
    terminal, job = scene.terminal, uploaded.jobs[uploaded.mistaken]
    terminal.step("A document that is no text: its job is dead at once, until a person mends it")
    ((status, *_),) = terminal.prove(f"Job {job}", ONE_JOB, id=job)
    terminal.prove("Its reason and its last error", WHY_DEAD, id=job)
    expect(status == "dead", f"the job of the malformed document is {status}")
    _, right = mistaken()
    with Session(scene.engine) as session, session.begin():
        document = session.get_one(Document, uploaded.mistaken)
        wrong = document.title
        replace_content(document, right)
        (redriven,) = redrive(session, [job])
    expect(redriven.landed, f"the job was not redriven: {redriven.reason}")
    terminal.say(
        f"One transaction stores {right.title} in the place of {wrong} and calls redrive(session, [{job}])."
    )
    watch(scene.engine, runner, terminal, until=lambda counts: not counts.unfinished)
    ((status, *_),) = terminal.prove(f"Job {job}", ONE_JOB, id=job)
    expect(status == "done", f"the redriven job is {status}")


def _wait_for_backends(scene: Scene, states: list[str]) -> None:
    """Until no connection of the runner is in such a state: what it sent last may still be under way."""
    deadline = time.monotonic() + 10
    with scene.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        while connection.execute(_BACKENDS, {"states": states}).scalar_one():
            expect(
                time.monotonic() < deadline,
                f"connections of runner-1 are still {' or '.join(states)} after 10 s",
            )
            time.sleep(0.02)
