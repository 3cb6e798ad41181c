"""What several of the runner's tests are given."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["thread", "asyncio"])
def where(request: pytest.FixtureRequest) -> str:
    """The executor that the handlers run in; on asyncio they are async."""
    return str(request.param)
