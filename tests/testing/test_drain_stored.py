"""What a drain leaves in the row for a test that looks at what users are shown."""

from __future__ import annotations

from sa_jobqueue import JobContext, Registry, enqueue
from sa_jobqueue.testing import Drained, drain
from tests.testing.conftest import Place, told
from tests.testing.test_drain import column


def test_progress_and_results_are_stored_as_a_runner_stores_them(place: Place) -> None:
    """The last word of a run about its progress, and what it returned."""
    jobs = Registry()

    @jobs.handler("count", keep_result=True)
    def count(ctx: JobContext) -> dict[str, int]:
        ctx.progress(0.5, "half")
        ctx.progress(1, "all of it")
        return {"pages": 12}

    async def scenario(place: Place) -> None:
        place.session.add(enqueue("count"))
        assert await told(drain(place.session, jobs)) == Drained(done=1)
        assert await column(place, "result") == [{"pages": 12}]
        (progress,) = await column(place, "progress")
        assert (progress["fraction"], progress["text"], progress["attempt"]) == (1, "all of it", 1)

    place.run(scenario)
