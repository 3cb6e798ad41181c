"""Runners, producers and an operator at work while everything breaks, and an account of it that none of them keeps.

app.py       the handlers, loaded by every runner process
ledger.py    the account: what handlers write down, and what a trigger sees of each job
checks.py    what must not be found in it
load.py      producers and an operator; what producers promise is in their own memory alone
fleet.py     the runner processes, restarted whenever they end, and what they log
faults.py    what breaks: one function for each kind
watch.py     the driver's own connection, which no fault ends for good
drive.py     the plan of faults, and how long it takes until all runners are at work again
report.py    what came of it, as a table and as a verdict

The short form is `test_chaos.py`, the long one `python3 tests soak`.
"""
