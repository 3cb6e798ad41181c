"""The executor of coroutines: bounded, able to give back, and gone without a trace at the end."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import threading
import weakref
from typing import Any

import pytest

from sa_jobqueue.states import Verb
from tests.support.executions import execution, race_to_the_stop
from tests.support.loop_floor import Gate, LoopFloor, loop_floor, nothing
from tests.support.waiting import PATIENCE, wait_until


def test_each_queue_runs_as_many_as_its_limit() -> None:
    """No more at once, of either colour, and another queue's handlers don't count."""
    gates = {"a": Gate(), "b": Gate()}
    opened = threading.Event()
    in_threads: list[int] = []

    def plain() -> None:
        in_threads.append(1)
        assert opened.wait(PATIENCE)
        in_threads.pop()

    with loop_floor(a=2, b=100) as floor:
        floor.executor.submit(
            [execution(gates[queue].pass_through, queue=queue) for queue in ("a", "b") for _ in range(150)]
        )
        wait_until(lambda: (gates["a"].waiting, gates["b"].waiting) == (2, 100))
        floor.executor.submit([execution(plain, queue="a") for _ in range(6)])
        gates["b"].opened = True
        wait_until(lambda: len(floor.outcomes) == 150)
        assert (gates["a"].waiting, in_threads) == (2, [])
        gates["a"].opened = True
        wait_until(lambda: len(in_threads) == 2)
        opened.set()
        wait_until(lambda: len(floor.outcomes) == 306)
    assert set(floor.verbs()) == {Verb.COMPLETE}


def test_a_plain_handler_runs_in_a_thread_and_blocks_nobody() -> None:
    """A def handler in a queue of this executor may block for as long as it likes."""
    gate = threading.Event()
    with loop_floor(default=2) as floor:
        blocking = execution(lambda: gate.wait(PATIENCE))
        floor.executor.submit([blocking])
        floor.carry_out(nothing)
        assert [one.execution for one in floor.outcomes] != [blocking]
        gate.set()
        wait_until(lambda: len(floor.outcomes) == 2)


def test_what_waits_is_taken_back_and_never_begins() -> None:
    """Each execution is either begun or given back, never both, and only those of the queues asked for."""
    gate, begun = Gate(), []

    async def begin() -> None:
        begun.append(1)

    with loop_floor(a=1, b=1) as floor:
        floor.executor.submit([execution(gate.pass_through, queue="a")])
        wait_until(lambda: gate.waiting)
        rest = [execution(begin, queue="a") for _ in range(50)]
        floor.executor.submit(rest)
        assert floor.executor.take_back(["b"]) == []
        assert floor.executor.take_back(["a"]) == rest
        gate.opened = True
        wait_until(lambda: floor.outcomes)
    assert (begun, floor.verbs()) == ([], [Verb.COMPLETE])


def test_a_stop_beginsnothing_more_and_lets_what_waits_go() -> None:
    """What runs ends as it would; what waited is released, and what comes later can be taken back."""
    gate, begun = Gate(), []

    async def begin() -> None:
        begun.append(1)

    with loop_floor(default=2) as floor:
        floor.executor.submit([execution(gate.pass_through) for _ in range(2)])
        wait_until(lambda: gate.waiting == 2)
        floor.executor.submit([execution(begin) for _ in range(10)])
        floor.executor.stop()
        wait_until(lambda: floor.verbs() == [Verb.RELEASE] * 10)
        assert not floor.executor.join(0)
        gate.opened = True
        assert floor.executor.join(PATIENCE)
        late = [execution(begin) for _ in range(3)]
        floor.executor.submit(late)
        assert floor.executor.take_back(["default"]) == late
    assert begun == []
    assert floor.verbs() == [Verb.RELEASE] * 10 + [Verb.COMPLETE] * 2


def test_submitting_taking_back_and_stopping_at_once_loses_nothing() -> None:
    """However it is raced: each execution has one outcome or was taken back, and no thread is left."""
    for turn in range(30):
        floor = LoopFloor({"default": 4})
        floor.executor.start()
        colours = [nothing if (number + turn) % 2 else lambda: None for number in range(20)]
        back = race_to_the_stop(floor.executor, [execution(handler) for handler in colours])
        assert floor.executor.join(PATIENCE)
        back += floor.executor.take_back(["default"])
        assert len(back) + len(floor.outcomes) == 20


def test_an_executor_that_gets_no_thread_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is claimed, and whatever it had begun is undone."""
    floor, start = LoopFloor({"default": 1}), threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "sa_jobqueue-asyncio":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            floor.executor.start()
    floor.executor.stop()
    assert floor.executor.join(PATIENCE)


def test_each_job_has_a_context_of_its_own() -> None:
    """What one handler sets no other sees, neither one that starts when it ends nor one of the other colour."""
    variable: contextvars.ContextVar[int] = contextvars.ContextVar("variable", default=0)
    seen: list[int] = []

    async def work() -> None:
        seen.append(variable.get())
        variable.set(1)

    def plain() -> None:
        seen.append(variable.get())
        variable.set(1)

    with loop_floor(default=1) as floor:
        floor.carry_out(work, work, plain, plain, work)
    assert seen == [0] * 5


def test_what_handlers_leave_on_the_loop_is_ended() -> None:
    """Tasks are cancelled and async generators closed, without a warning, before the thread ends."""
    ended: list[str] = []

    async def endless() -> Any:
        try:
            while True:
                yield 1
        finally:
            ended.append("generator")

    kept: list[Any] = []

    async def task() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append("task")

    async def leave() -> None:
        kept.append(asyncio.create_task(task()))
        kept.append(endless())
        await anext(kept[-1])

    with loop_floor() as floor:
        floor.carry_out(leave)
        assert ended == []
    assert sorted(ended) == ["generator", "task"]


class _Payload:
    """Something large in a handler's locals."""


def test_a_failed_handlers_locals_are_let_go_at_once() -> None:
    """The traceback holds them: kept in a cycle they would wait for the garbage collector, open sessions and all."""
    kept: list[weakref.ref[_Payload]] = []

    async def fail() -> None:
        local = _Payload()
        kept.append(weakref.ref(local))
        await asyncio.sleep(0)
        raise ValueError

    gc.collect()
    gc.disable()
    try:
        with loop_floor() as floor:
            floor.carry_out(fail)
            wait_until(lambda: kept[0]() is None, what="the handler's locals to be gone")
    finally:
        gc.enable()


def test_an_idle_loop_keeps_no_execution_alive() -> None:
    """The last payload of the day must not stay in memory all night."""
    with loop_floor() as floor:

        async def work() -> None: ...

        kept = weakref.ref(work)
        floor.executor.submit([execution(work)])
        del work
        wait_until(lambda: floor.outcomes)
        floor.outcomes.clear()
        wait_until(lambda: gc.collect() >= 0 and kept() is None, what="the execution to be gone")
