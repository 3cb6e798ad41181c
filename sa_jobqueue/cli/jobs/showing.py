"""`sa-jobqueue jobs show`: everything about a job, and what can be done to it now."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from sa_jobqueue import admin
from sa_jobqueue.cli.connect import with_database
from sa_jobqueue.cli.exits import OPERATOR_EXIT_CODES, TroubleError
from sa_jobqueue.cli.jobs.listing import told
from sa_jobqueue.cli.jobs.selecting import JOB_ID
from sa_jobqueue.cli.output import coloured, json_line
from sa_jobqueue.cli.secrets import secrets_options
from sa_jobqueue.cli.when import exact, relative
from sa_jobqueue.states import JobStatus
from sa_jobqueue.terminal import safe, safe_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sa_jobqueue.cli.connect import Database
    from sa_jobqueue.cli.secrets import Shown
    from sa_jobqueue.views import JobDetails, JobError

_INDENT = "  "


@click.command(epilog=OPERATOR_EXIT_CODES)
@click.argument("ids", metavar="ID...", nargs=-1, required=True, type=JOB_ID)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per job and line, times in UTC.")
@secrets_options
@with_database
def show(*, database: Database, ids: tuple[int, ...], as_json: bool, shown: Shown) -> None:
    """Show everything about a job: its fields, payload and errors, and what can be done now.

    \b
      sa-jobqueue jobs show 7
      sa-jobqueue jobs show 7 --json | jq .payload

    In payload, result, trace context and progress "[redacted]" stands for passwords and the like, by the names of
    fields; idempotency keys and errors are shown as they are.
    """
    missing = []
    first = True
    for job_id in dict.fromkeys(ids):
        with database.transaction() as connection:
            job = admin.get_job(connection, job_id)
        if job is None:
            missing.append(str(job_id))
        elif as_json:
            click.echo(json_line(shown(job)))
        else:
            click.echo("\n".join([*([] if first else [""]), *described(shown(job))]))
            first = False
    if missing:
        raise TroubleError(
            f"no such job: {', '.join(missing)} (never enqueued, rolled back, or pruned); "
            "see: sa-jobqueue jobs list"
        )


def described(job: JobDetails) -> Iterator[str]:
    """The lines that show a job; fields without a value are left out."""
    yield f"job {job.id}: {coloured(job.status, job.status)}"
    facts = {name: value for name, value in _facts(job).items() if value is not None}
    yield from (f"{_INDENT}{line}" for line in _aligned(facts))
    for name, content in (
        ("payload", job.payload),
        ("result", job.result),
        ("trace context", job.trace_context),
    ):
        if content is not None:
            yield f"{name}:"
            yield from _indented(_pretty(content))
    errors = job.errors[::-1]
    if not errors and job.last_error:
        yield "last error:"
        yield from _indented(job.last_error)
    if errors:
        yield f"errors, the last first ({len(errors)} kept):"
    for error in errors:
        yield f"{_INDENT}{_occasion(error)}"
        yield from _indented(error.error, by=_INDENT * 2)
    yield "now:"
    yield from (f"{_INDENT}{line}" for line in _aligned(advice(job)))


def advice(job: JobDetails) -> dict[str, str]:
    """What can be done to a job in its status: what for, and the command to type."""
    command = "sa-jobqueue jobs"
    stop, again = f"{command} cancel {job.id}", f"{command} redrive {job.id}"
    match job.status:
        case JobStatus.READY if job.run_at > job.now:
            return {"run it at once": f"{command} reschedule {job.id} --now", "stop it": stop}
        case JobStatus.READY:
            return {"run it before others": f"{command} reschedule {job.id} --priority 0", "stop it": stop}
        case JobStatus.RUNNING:
            lost = job.lease_until is not None and job.lease_until < job.now
            lines = {"its lease is past": "any runner takes the job back; is one running?"} if lost else {}
            if job.cancel_requested_at is None:
                return lines | {"ask it to stop": stop}
            return lines | {"asked to stop": "it ends when its handler does"}
        case JobStatus.DEAD | JobStatus.CANCELLED:
            return {"try it again": again}
        case JobStatus.DONE:
            return {"nothing": "a job that is done stays done"}


def _aligned(facts: dict[str, str]) -> Iterator[str]:
    longest = max(map(len, facts))
    for name, value in facts.items():
        yield f"{name:<{longest}}  {safe(value)}"


def _facts(job: JobDetails) -> dict[str, str | None]:
    now = job.now
    starts = f" ({job.attempts} starts, {job.returned} given back)" if job.returned else ""
    key = None
    if job.idempotency_key is not None:
        key = f"{job.idempotency_key} ({'guards this job' if job.holds_key else 'let go'}, scope {job.key_scope})"
    lease = None
    if job.lease_until is not None:
        lease = f"{job.leased_by or 'nobody'}, until {exact(job.lease_until, now)}"
    return {
        "kind": job.kind,
        "queue": job.queue,
        "priority": f"{job.priority} (0 first, 9 last)",
        "attempts": f"{job.counted_attempts} of {job.max_attempts}{starts}",
        "reason": job.reason,
        "progress": _progress(job),
        "run at": exact(job.run_at, now),
        "expires at": exact(job.expires_at, now),
        "lease": lease,
        "last runner": job.leased_by if job.lease_until is None else None,
        "cancel requested": exact(job.cancel_requested_at, now),
        "idempotency key": key,
        "payload version": str(job.payload_version),
        "created": exact(job.created_at, now),
        "updated": exact(job.updated_at, now),
        "finished": exact(job.finished_at, now),
    }


def _progress(job: JobDetails) -> str | None:
    if (progress := job.progress) is None:
        return None
    said = told(progress)
    if progress.attempt is None or progress.at is None:
        return said
    return f"{said} (attempt {progress.attempt}, {relative(progress.at, job.now)})"


def _occasion(error: JobError) -> str:
    attempt = "attempt ?" if error.attempt is None else f"attempt {error.attempt}"
    return safe(", ".join(part for part in (attempt, error.verb, error.at) if part))


def _pretty(content: Any) -> str:
    if isinstance(content, Exception):  # what couldn't be read stands in the payload's place
        return str(content)
    return json.dumps(content, indent=2, ensure_ascii=False, default=str)


def _indented(text: str, *, by: str = _INDENT) -> Iterator[str]:
    for line in safe_lines(text):
        yield f"{by}{line}"
