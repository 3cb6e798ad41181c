"""What holds of every row, and of every change of one, whatever the table of verbs says. Capitals name a broken one."""

from __future__ import annotations

from typing import Any

from tests.model.rows import TERMINAL

Rows = dict[int, dict[str, Any]]


def differences(rows: Rows, expected: Rows) -> list[str]:
    """Lines that name each column."""
    lines = ["the rows are not what the table of verbs says:"]
    for job_id in sorted(rows.keys() | expected.keys()):
        if job_id not in rows or job_id not in expected:
            lines.append(f"job {job_id} is only {'in the model' if job_id in expected else 'in the table'}")
            continue
        lines += [
            f"job {job_id}: {name} is {value!r}, must be {expected[job_id][name]!r}"
            for name, value in rows[job_id].items()
            if value != expected[job_id][name]
        ]
    return lines


def check_row(row: dict[str, Any]) -> None:
    """What is true of every row at any time."""
    status = row["status"]
    assert (status == "running") == (row["lease_token"] is not None) == (row["lease_until"] is not None)
    assert (status == "running") == (row["leased_by"] is not None)
    assert (status in TERMINAL) == (row["finished_at"] is not None)
    assert (status in ("dead", "cancelled")) == (row["reason"] is not None)
    assert 0 <= row["returned"] <= row["attempts"]
    assert row["attempts"] - row["returned"] <= row["max_attempts"], "BUDGET"
    # CANCEL-LOST: who asked for it must not find the job ready, or dead.
    assert row["cancel_requested_at"] is None or status in ("running", "done", "cancelled")
    if row["key_scope"] == "row":
        assert row["unique_key"] == row["idempotency_key"]
    if row["key_scope"] == "unfinished":
        assert row["unique_key"] == (None if status in TERMINAL else row["idempotency_key"])


def check_change(old: dict[str, Any], row: dict[str, Any], *, at_once: bool) -> None:
    """What no step may do to a row, and no single statement."""
    assert row["attempts"] >= old["attempts"]
    assert row["returned"] >= old["returned"]
    # TWO-COMPLETIONS: no way out of done.
    assert old["status"] != "done" or row == old
    if at_once:
        return
    if row["settled_token"] != old["settled_token"]:
        # Settled under the token that it had, once: TWO-OUTCOMES.
        assert row["settled_token"] == old["lease_token"] != row["lease_token"]
    if row["lease_token"] != old["lease_token"] and row["lease_token"] is not None:
        assert old["lease_token"] is None, "claimed from under its owner"
        assert row["attempts"] == old["attempts"] + 1
