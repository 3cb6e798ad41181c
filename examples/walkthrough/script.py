"""The script, which tells its story by itself."""

from __future__ import annotations

from examples.documents.demo.trouble import expect
from examples.walkthrough.stage import Stage

FOLDER = "examples/script"
READ = "examples/script/orders.py"
LINES = [
    "before the rollback: orders: 1, jobs: 1",
    "after the rollback: orders: 0, jobs: 0",
    "after the commit: orders: 1, jobs: 1",
    "job 2: done; receipt: 2 for ada@example.org",
]


def tell(stage: Stage) -> None:
    """Run it and show what it printed, which has to be as expected, and so in the database."""
    output = stage.run("examples.script.orders").splitlines()
    for line in output:
        stage.say(f"    {line}")
    expect(output == LINES, "the script should have printed\n" + "\n".join(LINES))
    stage.count(orders=1, jobs=1)
