"""What must not be found in the account: each check is a query for the jobs that break it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

#: Kinds whose handlers end in `ctx.complete()`, with one effect.
_EFFECTIVE = "('effect', 'flaky', 'chain', 'nap', 'await')"
_ALLOWED = """
    ('INSERT', NULL, 'ready'), ('UPDATE', 'ready', 'running'), ('UPDATE', 'running', 'done'),
    ('UPDATE', 'running', 'ready'), ('UPDATE', 'running', 'dead'), ('UPDATE', 'running', 'cancelled'),
    ('UPDATE', 'ready', 'cancelled'), ('UPDATE', 'dead', 'ready'), ('UPDATE', 'cancelled', 'ready'),
    ('DELETE', 'done', NULL), ('DELETE', 'dead', NULL), ('DELETE', 'cancelled', NULL)
"""

CHECKS: Mapping[str, str] = {
    "committed, and never there": """
        SELECT mark FROM chaos_promises WHERE fate = 'committed'
        EXCEPT SELECT mark FROM chaos_audit WHERE op = 'INSERT'
    """,
    "there, and vanished": """
        SELECT job_id FROM chaos_ends WHERE NOT pruned EXCEPT SELECT id FROM jobqueue_jobs
    """,
    "rolled back, and there": """
        SELECT mark FROM chaos_promises WHERE fate = 'rolled back'
        INTERSECT SELECT mark FROM chaos_audit WHERE op = 'INSERT'
    """,
    "enqueued by nobody": """
        SELECT mark FROM chaos_audit WHERE op = 'INSERT' AND mark > 0 EXCEPT SELECT mark FROM chaos_promises
    """,
    "enqueued twice": """
        SELECT mark FROM (
            SELECT mark, op, lag(op) OVER (PARTITION BY mark ORDER BY seq) AS before FROM chaos_audit
            WHERE op IN ('INSERT', 'DELETE')
        ) AS both_ends WHERE op = before
    """,
    "not at rest": "SELECT id FROM jobqueue_jobs WHERE status IN ('ready', 'running')",
    "at rest where it does not belong": """
        SELECT job_id FROM chaos_ends WHERE NOT CASE status
            WHEN 'done' THEN kind <> 'doomed'
            WHEN 'dead' THEN kind = 'doomed'
            WHEN 'cancelled' THEN job_id IN (SELECT job_id FROM chaos_cancelled)
            ELSE true END
    """,
    "transition that there is not": f"""
        SELECT DISTINCT job_id FROM chaos_audit AS seen WHERE NOT EXISTS (
            SELECT FROM (VALUES {_ALLOWED}) AS allowed (op, old, new)
            WHERE (allowed.op, allowed.old, allowed.new) IS NOT DISTINCT FROM (seen.op, old_status, new_status)
        )
    """,
    "completed twice": "SELECT job_id FROM chaos_completions GROUP BY job_id HAVING count(*) > 1",
    "completed by another run than the last one": """
        SELECT job_id FROM chaos_completions AS completion WHERE settled_token IS DISTINCT FROM (
            SELECT new_token FROM chaos_claims AS claim
            WHERE claim.job_id = completion.job_id AND claim.seq < completion.seq ORDER BY claim.seq DESC LIMIT 1
        )
    """,
    "token used twice": "SELECT job_id FROM chaos_claims GROUP BY job_id, new_token HAVING count(*) > 1",
    "effect twice": "SELECT job_id FROM chaos_effects GROUP BY job_id HAVING count(*) > 1",
    "effect missing": f"""
        SELECT job_id FROM chaos_completions WHERE kind IN {_EFFECTIVE} EXCEPT SELECT job_id FROM chaos_effects
    """,
    "effect without its completion": """
        SELECT job_id FROM (
            SELECT job_id, xid FROM chaos_effects EXCEPT SELECT job_id, xid FROM chaos_completions
        ) AS alone
    """,
    "follow-up without its completion, or the other way round": """
        SELECT coalesce(parent.mark, -child.mark) FROM (SELECT * FROM chaos_completions WHERE kind = 'chain') AS parent
        FULL JOIN (SELECT * FROM chaos_audit WHERE op = 'INSERT' AND mark < 0) AS child
            ON child.mark = -parent.mark AND child.xid = parent.xid
        WHERE parent.seq IS NULL OR child.seq IS NULL
    """,
    "attempts other than claims": """
        SELECT job_id FROM chaos_ends LEFT JOIN (
            SELECT job_id, count(*) AS claims FROM chaos_claims GROUP BY job_id
        ) AS claimed USING (job_id)
        LEFT JOIN jobqueue_jobs AS job ON job.id = job_id
        WHERE (chaos_ends.attempts, coalesce(job.attempts, chaos_ends.attempts))
            IS DISTINCT FROM (coalesce(claims, 0), coalesce(claims, 0))
    """,
    "more runs than claims": """
        SELECT job_id FROM chaos_runs LEFT JOIN (
            SELECT job_id, count(*) AS claims FROM chaos_claims GROUP BY job_id
        ) AS claimed USING (job_id) GROUP BY job_id, claims HAVING count(*) > coalesce(claims, 0)
    """,
}
#: Which of them mean that a job is lost.
LOST = ("committed, and never there", "there, and vanished", "not at rest")


def offenders(connection: psycopg.Connection[Any]) -> dict[str, list[int]]:
    """For each check that fails, the jobs (or marks of jobs) that break it."""
    found = {name: [row[0] for row in connection.execute(query.encode())] for name, query in CHECKS.items()}
    return {name: rows for name, rows in found.items() if rows}
