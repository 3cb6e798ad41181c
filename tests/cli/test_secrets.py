"""What commands show of payloads and the like: no secrets, unless somebody asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from tests.cli.conftest import Command, objects
from tests.support.jobs import add_running, keyed

SECRET, PASSWORD, IBAN = "S3CR3T-42", "PGPW-42", "DE02-42"
HELD = {"user": 7, "deep": [{"Api-Token": SECRET}], "iban": IBAN, "url": f"redis://me:{PASSWORD}@cache/0"}


@pytest.fixture
def job_id(engine: Engine) -> int:
    """A job with secrets in all that is shown of it."""
    text = f"from redis://me:{PASSWORD}@cache/0"
    progress = {"fraction": 0.5, "text": text, "attempt": 1, "at": "2026-01-01T00:00:00.000000Z"}
    return add_running(
        engine,
        uuid4(),
        payload=HELD,
        result=HELD,
        trace_context=HELD,
        progress=progress,
        last_error="token key-7",
        **keyed("token:key-7"),
    )


@pytest.mark.parametrize("style", [[], ["--json"]], ids=["text", "json"])
@pytest.mark.parametrize("what", ["show", "list"])
def test_secrets_are_hidden(command: Command, job_id: int, what: str, style: Sequence[str]) -> None:
    """Wherever they stand; what identifies a job and what its handler said of its failure is shown as it is."""
    shown = command("jobs", what, *([job_id] if what == "show" else []), *style).stdout
    assert SECRET not in shown
    assert PASSWORD not in shown
    assert "redis://me:[redacted]@cache/0" in shown
    if what == "show":
        assert shown.count("token") >= 2
        assert shown.count("key-7") >= 2
        assert shown.count(IBAN) == 3


def test_only_their_values(command: Command, job_id: int) -> None:
    """The shape of the payload is there, and every other value."""
    (job,) = objects(command("jobs", "show", job_id, "--json"))
    expected = {**HELD, "deep": [{"Api-Token": "[redacted]"}], "url": "redis://me:[redacted]@cache/0"}
    assert job["payload"] == job["result"] == job["trace_context"] == expected


@pytest.mark.parametrize(
    ("options", "environment"),
    [
        (["--redact", "iban"], {}),
        ([], {"SA_JOBQUEUE_REDACT": "other, IBAN"}),
        (["--redact", "other", "--redact", "url"], {"SA_JOBQUEUE_REDACT": "iban,"}),
    ],
)
def test_more_names(command: Command, job_id: int, options: Any, environment: dict[str, str]) -> None:
    """By options and by the variable, which add up, and add to what is hidden anyway."""
    shown = command("jobs", "show", job_id, *options, **environment).stdout
    assert IBAN not in shown
    assert SECRET not in shown


def test_on_request_everything_is_shown(command: Command, job_id: int) -> None:
    """As it is stored."""
    (job,) = objects(command("jobs", "show", job_id, "--json", "--show-secrets", "--redact", "iban"))
    assert job["payload"] == job["result"] == job["trace_context"] == HELD
    assert PASSWORD in job["progress"]["text"]


@pytest.mark.parametrize(("options", "variable"), [(["--redact", "_"], ""), ([], "iban,-")])
def test_a_name_of_nothing(command: Command, options: Sequence[str], variable: str) -> None:
    """It would hide every field, so it is refused before anybody looks."""
    result = command("jobs", "show", 1, *options, SA_JOBQUEUE_REDACT=variable)
    assert result.exit_code == 2
    assert "would hide every field" in result.stderr
