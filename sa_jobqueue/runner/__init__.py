"""The bundled runner: claims jobs, runs handlers outside any transaction, writes outcomes fenced by the lease."""

from __future__ import annotations

from sa_jobqueue.retention import Retention
from sa_jobqueue.runner.executors.protocol import Execution, Executor
from sa_jobqueue.runner.runner import Runner
from sa_jobqueue.runner.settings import QueueSettings, RunnerSettings

__all__ = ["Execution", "Executor", "QueueSettings", "Retention", "Runner", "RunnerSettings"]
