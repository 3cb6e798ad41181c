"""How a runner ends: the order of the end, what is written last, and the exit code."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from sa_jobqueue.events import LoopFailed, RunnerStopped, RunnerStopping
from sa_jobqueue.failures import describe_error
from sa_jobqueue.records import Settlement
from sa_jobqueue.runner import settle
from sa_jobqueue.runner.dispatch_messages import StopClaiming
from sa_jobqueue.runner.executors.protocol import Interruption
from sa_jobqueue.runner.reports import report_completed
from sa_jobqueue.runner.verdict import SHUTDOWN_ERROR
from sa_jobqueue.states import Verb

if TYPE_CHECKING:
    from sa_jobqueue.runner.crew import Crew
    from sa_jobqueue.runner.executors.protocol import Execution

#: Exit codes; a second signal gives 128 and its number.
STOPPED, FAULT, GRACE_PASSED, FORCED = 0, 1, 7, 128
#: How long, in seconds, the end waits for last writes to a database that may be away.
LAST_WRITES = 5.0
#: How long, in seconds, async handlers may clean up after they were cancelled at the end of the grace period.
CLEAN_UP = 2.0
#: How long, in seconds, threads with nothing left to write get to close their connections.
CLOSING = 1.0
_AT_ONCE = timedelta(0)


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a runner ends; with a fault, `cause` is the loop that died of it."""

    cause: str
    fault: BaseException | None = None


def end(crew: Crew, ending: Ending, *, hand_back: bool) -> int:
    """Stop claiming, wait for what runs, write what can be written; the exit code.

    What still runs after the grace period is handed back, for a process that ends, or else left to its leases.
    """
    now = time.monotonic()
    grace_ends = now + crew.settings.grace.total_seconds()
    _report(crew, ending)
    crew.executor.stop()
    crew.stop_listening()
    crew.maintenance.stop()
    crew.dispatcher.post(StopClaiming(until=now + LAST_WRITES))
    crew.dispatcher.join(max(grace_ends, now + LAST_WRITES) - now)
    crew.book.wait_until_empty(grace_ends)
    left = _hand_back_running(crew) if hand_back else _leave_running_to_leases(crew)
    last = time.monotonic() + LAST_WRITES
    crew.book.wait_until_empty(last)
    unwritten = set(crew.book.snapshot())
    handed_back = sum(one.let_go for one in crew.intake.handed_back)
    crew.book.close()
    crew.settler.post(settle.StopSettling(until=last))
    gone = max(last, time.monotonic() + CLOSING)
    for loop in crew.loops:
        if loop not in (crew.dispatcher, crew.settler):  # they end by themselves when they are through
            loop.stop()
    for loop in crew.loops:
        loop.join(gone - time.monotonic())
    if not left:
        crew.executor.join(gone - time.monotonic())
    elif not hand_back:  # the host lives on: what was cancelled is through soon
        crew.executor.join(CLEAN_UP)
    crew.engine.dispose()
    crew.sessions.close()
    told = ending.cause if ending.fault is not None else None
    # Whatever has died since: others may have taken what was held.
    faults = [one for cause, one in crew.faults().items() if cause != told]
    for one in faults:
        _report_fault(crew, one)
    late = left or crew.intake.handed_back or unwritten
    code = FAULT if told or faults else GRACE_PASSED if late else STOPPED
    crew.subscribers.emit(
        RunnerStopped(
            runner_id=crew.runner_id,
            exit_code=code,
            handed_back=handed_back,
            left_to_leases=len(unwritten) + (0 if hand_back else sum(not one.completed for one in left)),
        )
    )
    return code


def _report(crew: Crew, ending: Ending) -> None:
    cause = ending.cause
    if ending.fault is not None:
        _report_fault(crew, ending)
        cause = f"the loop {ending.cause} died"
    crew.subscribers.emit(
        RunnerStopping(
            runner_id=crew.runner_id, cause=cause, running=len(crew.book), grace=crew.settings.grace
        )
    )


def _report_fault(crew: Crew, ending: Ending) -> None:
    assert ending.fault is not None
    error = describe_error(ending.fault)
    crew.subscribers.emit(
        LoopFailed(runner_id=crew.runner_id, loop=ending.cause, error=error, failures=1, retry_in=None)
    )


def _hand_back_running(crew: Crew) -> list[Execution]:
    """End what still runs, its attempt counting, so that others may start it at once; those that refuse to end.

    Async handlers are cancelled and may clean up for a moment; whoever runs after that is decided in its place. Where its
    own transaction may complete the job just now, whichever write lands first counts.
    """
    cancelled = [one for one in crew.book.undecided() if crew.executor.interrupt(one, Interruption.SHUTDOWN)]
    crew.book.wait_until_decided(cancelled, time.monotonic() + CLEAN_UP)
    running = crew.book.decide_all()
    for execution in running:
        execution.context.mark_lost()
        if not _let_go_completed(crew, execution):
            crew.settler.post(settle.in_place(execution, _shutdown(execution)))
            crew.intake.handed_back.append(execution)
    return running


def _shutdown(execution: Execution) -> Settlement:
    return Settlement(*execution.key, Verb.RETRY, delay=_AT_ONCE, error=SHUTDOWN_ERROR)


def _let_go_completed(crew: Crew, execution: Execution) -> bool:
    """Whether the job is done, whatever its handler still does: then nothing is left to write."""
    if not execution.completed:
        return False
    crew.book.drop([execution.key])
    report_completed(settle.in_place(execution, _shutdown(execution))._replace(again=False), crew.subscribers)
    return True


def _leave_running_to_leases(crew: Crew) -> list[Execution]:
    """Write nothing about what still runs, and cancel what can be; which they were."""
    running = crew.book.decide_all()
    # Before anybody is cancelled: no word that they say on their way out may be written.
    crew.book.close()
    crew.book.drop(execution.key for execution in running)
    for execution in running:
        _let_go_completed(crew, execution)
        execution.context.mark_lost()
        crew.executor.interrupt(execution, Interruption.SHUTDOWN)
    return running
