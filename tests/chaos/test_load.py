"""The producers: what no outage explains ends them, and so the run, and is told."""

from __future__ import annotations

from sqlalchemy.exc import IntegrityError

from sa_jobqueue.testing.server import connect
from tests.chaos import ledger
from tests.chaos.load import Load
from tests.support.waiting import wait_until

REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE 'no' USING ERRCODE = '23505'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON jobqueue_jobs FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def test_a_mistake_is_no_outage(database_url: str) -> None:
    """A producer that went on trying would hide it for ever."""
    with connect(database_url) as connection:
        ledger.create(connection)
        connection.execute(REFUSE.encode())
    load = Load(database_url, seed=1)
    with load.going_on():
        wait_until(lambda: len(load.faults) == 2, what="the end of both producers")
    assert {type(fault) for fault in load.faults} == {IntegrityError}
    assert load.promises
    assert "committed" not in {fate for _, _, fate in load.promises}
