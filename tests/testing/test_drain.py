"""drain(): due jobs run in the test's own transaction, by the runner's statements, and nothing is committed."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import func, select, text

from sa_jobqueue import Discard, Job, JobContext, Registry, Retry, Settle, Snooze, enqueue, fixed, ref
from sa_jobqueue.models import jobs as table
from sa_jobqueue.testing import Drained, DrainError, drain
from tests.entry.application import Document
from tests.testing.conftest import Place, told

HOUR = timedelta(hours=1)


async def column(place: Place, name: str) -> list[Any]:
    """One column of all jobs, by id."""
    return list((await told(place.session.scalars(select(table.c[name]).order_by(table.c.id)))).all())


def test_handlers_see_uncommitted_rows_and_their_follow_ups_run(place: Place) -> None:
    """A pending job and its row, a handler with a session of its own, and the job that it enqueues."""
    jobs = Registry()

    @jobs.handler("title")
    def title(document_id: int) -> None:
        with place.make() as session:
            document = session.get_one(Document, document_id)
            document.title = document.title.upper()
            session.add(enqueue(shout.call(document_id=document_id)))
            session.commit()

    @jobs.handler("shout", queue="loud")
    def shout(ctx: JobContext, document_id: int) -> str:
        with place.make() as session, session.begin():
            session.get_one(Document, document_id).title += f"! {ctx.attempt}"
        return "done"

    async def scenario(place: Place) -> None:
        document = Document(title="news")
        place.session.add_all([document, enqueue(title.call(document_id=ref(document)))])
        drained = await told(drain(place.session, jobs))
        assert drained == Drained(done=2)
        assert [(run.kind, run.attempt, run.verb) for run in drained.runs] == [
            ("title", 1, "complete"),
            ("shout", 1, "complete"),
        ]
        await told(place.session.refresh(document))
        assert document.title == "NEWS! 1"
        assert await column(place, "status") == ["done", "done"]
        assert await told(drain(place.session, jobs)) == Drained()

    place.run(scenario)


@pytest.mark.parametrize("kind", ["psycopg", "asyncpg"])
def test_async_handlers_have_async_sessions_on_the_same_connection(kind: str, application: Any) -> None:
    """Awaited in the test's own loop, each in a task of its own."""
    jobs = Registry()
    place = Place(kind, application)

    @jobs.handler("title")
    async def title(document_id: int) -> None:
        async with place.make_async() as session, session.begin():
            (await session.get_one(Document, document_id)).title = "seen"
            session.add(enqueue("fails"))

    @jobs.handler("fails")
    async def fails() -> None:
        raise Settle(Discard("no use"))

    async def scenario(place: Place) -> None:
        document = Document(title="news")
        place.session.add_all([document, enqueue(title.call(document_id=ref(document)))])
        assert await drain(place.session, jobs) == Drained(done=1, dead=1)
        await place.session.refresh(document)
        assert document.title == "seen"

    place.run(scenario)


def test_a_connection_is_drained_as_a_session_is(place: Place) -> None:
    """Core alone is enough."""
    jobs = Registry()
    seen = []

    @jobs.handler("k")
    def k(ctx: JobContext) -> None:
        seen.append(ctx.payload)

    async def scenario(place: Place) -> None:
        await told(place.connection.execute(table.insert().values(kind="k", payload={"a": [1, None]})))
        assert await told(drain(place.connection, jobs)) == Drained(done=1)

    place.run(scenario)
    assert seen == [{"a": [1, None]}]


def test_outcomes_are_settled_as_a_runner_settles_them(place: Place) -> None:
    """One job for each outcome; only due ones run, unknown kinds and other queues are left alone."""
    jobs = Registry()

    @jobs.handler("outcome")
    def outcome(which: str) -> Any:
        return {"retry": Retry(after=HOUR), "snooze": Snooze(HOUR), "discard": Discard("why"), "none": None}[
            which
        ]

    async def scenario(place: Place) -> None:
        for which in ("retry", "snooze", "discard", "none"):
            place.session.add(enqueue(outcome.call(which=which)))
        place.session.add(enqueue(outcome.call(which="retry"), max_attempts=1))
        place.session.add(enqueue(outcome.call(which="none"), delay=HOUR))
        place.session.add(enqueue(outcome.call(which="none"), queue="other"))
        place.session.add(enqueue("unknown"))
        drained = await told(drain(place.session, jobs, queues=["default"]))
        assert drained == Drained(done=1, retried=1, snoozed=1, dead=2)
        assert [(run.verb, run.status, run.delay, run.reason) for run in drained.runs] == [
            ("retry", "ready", HOUR, None),
            ("snooze", "ready", HOUR, None),
            ("discard", "dead", None, "discarded: why"),
            ("complete", "done", None, None),
            ("retry", "dead", None, "exhausted"),
        ]
        assert await column(place, "attempts") == [1, 1, 1, 1, 1, 0, 0, 0]
        assert await column(place, "returned") == [0, 1, 0, 0, 0, 0, 0, 0]
        assert await column(place, "lease_token") == [None] * 8
        assert await column(place, "reason") == [None, None, "discarded: why", None, "exhausted", *[None] * 3]

    place.run(scenario)


def test_a_failure_is_settled_and_then_fails_the_test(place: Place) -> None:
    """The handler's own exception comes out, and says which job it was and where that is now."""
    jobs = Registry()

    @jobs.handler("fails", retry=fixed(HOUR))
    def fails() -> None:
        raise KeyError("lost")

    async def scenario(place: Place) -> None:
        place.session.add_all([enqueue(fails.call()), enqueue(fails.call())])
        with pytest.raises(KeyError, match="lost") as caught:
            await told(drain(place.session, jobs))
        (note,) = caught.value.__notes__
        assert "(fails), attempt 1 of 5: the job is ready now in 1h; with raise_errors=False" in note
        assert await column(place, "attempts") == [1, 0]
        assert ["KeyError" in (error or "") for error in await column(place, "last_error")] == [True, False]
        drained = await told(drain(place.session, jobs, raise_errors=False))
        assert drained == Drained(retried=1)
        (run,) = drained.runs
        assert isinstance(run.exception, KeyError)
        assert run.delay == HOUR
        assert "KeyError" in str(run.error)

    place.run(scenario)


def test_time_travel_brings_retries_snoozes_and_delays_to_their_end(place: Place) -> None:
    """In the order of their due times; the handler is told its own, and attempts run out as they do in life."""
    jobs = Registry()
    seen: list[tuple[str, int]] = []
    times = []

    @jobs.handler("fails", max_attempts=3, retry=fixed(HOUR))
    def fails(ctx: JobContext) -> None:
        seen.append(("fails", ctx.attempt))
        raise KeyError

    @jobs.handler("waits")
    def waits(ctx: JobContext) -> Any:
        seen.append(("waits", ctx.attempt))
        times.append(ctx.run_at)
        return Snooze(timedelta(minutes=50)) if len(times) < 4 else None

    @jobs.handler("late")
    def late(ctx: JobContext) -> None:
        seen.append(("late", ctx.attempt))

    async def scenario(place: Place) -> None:
        for one in (enqueue(fails.call()), enqueue("waits"), enqueue("late", delay=timedelta(minutes=90))):
            place.session.add(one)
            await told(place.session.flush())
        drained = await told(drain(place.session, jobs, with_delayed=True, raise_errors=False))
        assert drained == Drained(done=2, retried=2, snoozed=3, dead=1)

    place.run(scenario)
    assert seen == [
        *(("fails", 1), ("waits", 1)),  # at once
        *(("waits", 1), ("fails", 2)),  # 50, 60
        *(("late", 1), ("waits", 1)),  # 90, 100
        *(("fails", 3), ("waits", 1)),  # 120, 150
    ]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert all(timedelta(minutes=50) <= gap < timedelta(minutes=51) for gap in gaps)


def test_what_expires_is_cancelled_and_its_handler_is_not_called(place: Place) -> None:
    """Past expires_at when it is claimed, on the clock or in the time that is pretended."""
    jobs = Registry()

    @jobs.handler("k")
    def k() -> None:
        pytest.fail("called")

    async def scenario(place: Place) -> None:
        now = func.clock_timestamp()
        times = [(now - HOUR, now - timedelta(minutes=1)), (now + 2 * HOUR, now + HOUR)]
        for run_at, expires_at in times:
            await told(
                place.connection.execute(
                    table.insert().values(kind="k", run_at=run_at, expires_at=expires_at)
                )
            )
        drained = await told(drain(place.session, jobs))
        assert drained == Drained(cancelled=1)
        assert (drained.runs[0].verb, drained.runs[0].reason) == ("abort", "expired")
        assert await told(drain(place.session, jobs, with_delayed=True)) == Drained(cancelled=1)
        assert await column(place, "reason") == ["expired", "expired"]

    place.run(scenario)


def test_a_cancelled_job_does_not_run_and_a_request_during_the_run_counts(sync_place: Place) -> None:
    """A retry of a job whose cancellation was requested meanwhile leads to cancelled."""
    jobs = Registry()

    @jobs.handler("k")
    def k(ctx: JobContext) -> Retry:
        asked = table.update().where(table.c.id == ctx.id).values(cancel_requested_at=func.now())
        sync_place.connection.execute(asked)
        return Retry()

    async def scenario(place: Place) -> None:
        finished = {"status": "cancelled", "reason": "cancelled", "finished_at": func.now()}
        place.connection.execute(table.insert().values(kind="k", **finished))
        place.session.add(enqueue("k"))
        drained = drain(place.session, jobs)
        assert drained == Drained(cancelled=1)
        assert (drained.runs[0].verb, drained.runs[0].reason) == ("retry", "cancelled")

    sync_place.run(scenario)


def test_a_payload_that_no_longer_fits_is_a_failure(sync_place: Place) -> None:
    """As in a runner: settled by the retry policy, with the message that names kind and field."""
    jobs = Registry()

    @jobs.handler("k")
    def k(name: str) -> None: ...

    async def scenario(place: Place) -> None:
        place.session.add(enqueue("k", {"nmae": "x"}))
        drained = drain(place.session, jobs, raise_errors=False)
        assert drained == Drained(retried=1)
        assert "kind 'k': the payload lacks 'name'" in str(drained.runs[0].error)

    sync_place.run(scenario)


def test_jobs_go_by_priority_then_due_time_over_all_queues(sync_place: Place) -> None:
    """A queue's name decides nothing, and a job that outranks the others goes next even when it comes last."""
    jobs = Registry()
    order: list[str] = []

    @jobs.handler("k")
    def k(name: str) -> None:
        order.append(name)
        if name == "first":
            with sync_place.make() as session, session.begin():
                session.add(enqueue(k.call(name="urgent follow-up"), queue="z", priority=0))

    async def scenario(place: Place) -> None:
        for name, queue, priority in (
            ("third", "a", 5),
            ("last", "a", 9),
            ("first", "b", 0),
            ("second", "c", 1),
        ):
            place.session.add(enqueue(k.call(name=name), queue=queue, priority=priority))
        drain(place.session, jobs)

    sync_place.run(scenario)
    assert order == ["first", "urgent follow-up", "second", "third", "last"]


@pytest.mark.parametrize(("travel", "delay"), [(False, 0), (True, 60)])
def test_what_has_no_end_hits_the_limit(place: Place, travel: bool, delay: int) -> None:
    """A handler that enqueues itself, and with time travel one that snoozes for ever."""
    jobs = Registry()

    @jobs.handler("ping")
    def ping() -> Any:
        if travel:
            return Snooze(timedelta(seconds=delay))
        with place.make() as session, session.begin():
            session.add(enqueue(ping.call()))
        return None

    async def scenario(place: Place) -> None:
        place.session.add(enqueue(ping.call()))
        with pytest.raises(DrainError) as caught:
            await told(drain(place.session, jobs, limit=7, with_delayed=travel))
        verb = "snooze" if travel else "complete"
        assert str(caught.value) == (
            f"drain(): 7 runs, and jobs are still due. Most of them were: 'ping' ({verb}) 7. A handler that enqueues "
            "itself or snoozes for ever has no end; for a test that needs more runs pass limit=..."
        )
        assert caught.value.drained == (Drained(snoozed=7) if travel else Drained(done=7))

    place.run(scenario)


def test_the_limit_is_reached_without_an_error(sync_place: Place) -> None:
    """As many runs as the limit are fine when nothing is due after them."""
    jobs = Registry()
    jobs.handler("k")(lambda: None)

    async def scenario(place: Place) -> None:
        place.session.add_all([enqueue("k") for _ in range(3)])
        assert drain(place.session, jobs, limit=3) == Drained(done=3)

    sync_place.run(scenario)


def test_a_refused_statement_leaves_the_transaction_as_it_was(place: Place) -> None:
    """Somebody's trigger refuses the claim of one job: the others run, it is told, and the test's session can go on."""
    jobs = Registry()
    jobs.handler("k")(lambda: None)

    async def scenario(place: Place) -> None:
        function = (
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
            " IF new.payload ? 'bad' THEN RAISE 'no'; END IF; RETURN new; END $$"
        )
        trigger = (
            "CREATE TRIGGER refuse BEFORE UPDATE ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION refuse()"
        )
        for statement in (function, trigger):
            await told(place.connection.execute(text(statement)))
        place.session.add_all([enqueue("k", {"bad": 1}), enqueue("k")])
        with pytest.raises(DrainError, match=r"the claim of job 1: \w+, SQLSTATE P0001") as caught:
            await told(drain(place.session, jobs))
        assert caught.value.drained == Drained(done=1)
        assert await column(place, "status") == ["ready", "done"]

    place.run(scenario)


def test_a_session_is_expired_as_by_a_commit_and_keeps_its_own_changes(sync_place: Place) -> None:
    """The next read shows what handlers wrote; what the test has changed since is still pending."""
    jobs = Registry()

    @jobs.handler("k")
    def k(document_id: int) -> None:
        with sync_place.make() as session, session.begin():
            session.get_one(Document, document_id).title = "written"

    async def scenario(place: Place) -> None:
        with place.make(expire_on_commit=True) as session:
            document, other = Document(title="a"), Document(title="b")
            session.add_all([document, other])
            session.add(job := enqueue(k.call(document_id=ref(document))))
            drain(session, jobs)
            assert (document.title, job.status) == ("written", "done")
            other.title = "changed"
            drain(session, jobs)
            assert other.title == "changed"

    sync_place.run(scenario)


def test_jobs_that_others_hold_are_passed_over(sync_place: Place) -> None:
    """On a shared database a drain neither waits for a row nor spins on it."""
    jobs = Registry()
    jobs.handler("k")(lambda: None)
    engine = sync_place.engine
    with engine.begin() as connection:
        job_id = connection.execute(table.insert().values(kind="k").returning(table.c.id)).scalar_one()
    with engine.connect() as locker, engine.connect() as mine:
        locker.execute(select(table.c.id).where(table.c.id == job_id).with_for_update())
        assert drain(mine, jobs) == Drained()
        locker.rollback()
        assert drain(mine, jobs) == Drained(done=1)
        mine.rollback()
    with engine.connect() as connection:
        assert connection.scalar(select(Job.status)) == "ready"
