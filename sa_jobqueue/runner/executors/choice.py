"""Which executor each queue of a runner gets, and all of them as the one that the runner talks to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sa_jobqueue.events import LoopBlocked, Subscribers, job_fields
from sa_jobqueue.runner.executors.event_loop import AsyncioExecutor
from sa_jobqueue.runner.executors.routing import RoutingExecutor
from sa_jobqueue.runner.executors.threads import ThreadExecutor

if TYPE_CHECKING:
    from collections.abc import Callable

    from sa_jobqueue.registry import Registry
    from sa_jobqueue.runner.attempt import Attempts
    from sa_jobqueue.runner.executors.loop_watch import Blockage
    from sa_jobqueue.runner.executors.protocol import Executor
    from sa_jobqueue.runner.settings import ExecutorName, RunnerSettings


def chosen_executors(settings: RunnerSettings, registry: Registry) -> dict[str, ExecutorName]:
    """The executor of each queue: the one it was given, else asyncio where an async handler's calls go, else threads."""
    asynchronous = {handler.queue for handler in registry.handlers if handler.is_async}
    return {
        queue: settings.executor(queue) or ("asyncio" if queue in asynchronous else "thread")
        for queue in settings.limits
    }


def make_executor(
    settings: RunnerSettings,
    registry: Registry,
    attempts: Attempts,
    *,
    runner_id: str,
    subscribers: Subscribers,
    on_fault: Callable[[BaseException], None],
) -> Executor:
    """The executor of a runner; `on_fault` is told when an event loop has broken for good."""
    chosen, limits = chosen_executors(settings, registry), settings.limits

    def report(blockage: Blockage) -> None:
        subscribers.emit(_loop_blocked(runner_id, blockage))

    by_queue: dict[str, Executor] = {}
    if threaded := {queue: limits[queue] for queue, name in chosen.items() if name == "thread"}:
        threads = ThreadExecutor(threaded, carry_out=attempts.carry_out, let_go=attempts.let_go)
        by_queue |= dict.fromkeys(threaded, threads)
    if looped := {queue: limits[queue] for queue, name in chosen.items() if name == "asyncio"}:
        loop = AsyncioExecutor(
            looped,
            carry_out=attempts.carry_out,
            carry_out_async=attempts.carry_out_async,
            let_go=attempts.let_go,
            on_blocked=report,
            on_fault=on_fault,
        )
        by_queue |= dict.fromkeys(looped, loop)
    return RoutingExecutor(by_queue)


def _loop_blocked(runner_id: str, blockage: Blockage) -> LoopBlocked:
    told = LoopBlocked(runner_id=runner_id, duration=blockage.duration, location=blockage.location)
    execution = blockage.execution
    return told if execution is None else replace(told, **job_fields(execution.job))
