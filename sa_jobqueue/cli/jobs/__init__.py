"""`sa-jobqueue jobs`: what an operator looks at and does to jobs."""

from sa_jobqueue.cli.jobs.group import jobs

__all__ = ["jobs"]
