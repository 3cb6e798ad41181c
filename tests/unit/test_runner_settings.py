"""Settings that can't work are refused where they are set, with the values named."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from sa_jobqueue.runner import RunnerSettings


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"queues": {}}, "queues is empty"),
        ({"queues": {"ai": 0}}, r"queues\['ai'\]=0"),
        ({"queues": {"ai": 1.5}}, r"queues\['ai'\]=1.5"),
        ({"queues": {"ai": True}}, r"queues\['ai'\]=True"),
        ({"queues": {"a\0i": 1}}, "queues: the character"),
        ({"name": "a\0b"}, "name: the character"),
        ({"lease": timedelta(0)}, "lease=0s: must be from 300ms"),
        ({"lease": timedelta.max}, "lease="),
        ({"poll_interval": timedelta(0)}, "poll_interval=0s: must be from 1ms"),
        ({"poll_interval": timedelta(days=10**6)}, "poll_interval="),
        ({"grace": timedelta(seconds=-1)}, "grace=-1s"),
        ({"rescue_interval": timedelta(0)}, "rescue_interval=0s"),
        ({"prune_interval": timedelta(0)}, "prune_interval=0s: must be from 10ms"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], words: str) -> None:
    """The message names the setting, its value and the bounds."""
    with pytest.raises(ValueError, match=words):
        RunnerSettings(**settings)


def test_a_renewal_is_due_every_third_of_a_lease() -> None:
    """Two renewals in a row may fail before a lease ends."""
    assert RunnerSettings(lease=timedelta(minutes=2)).renewal_interval == timedelta(seconds=40)
