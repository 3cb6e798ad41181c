"""The steps in order: step N leads from version N - 1 to N and back."""

from __future__ import annotations

from sa_jobqueue.migrations.steps import v001_jobs, v002_wake_up

STEPS = (v001_jobs, v002_wake_up)
LATEST = len(STEPS)
