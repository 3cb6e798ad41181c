"""Two runners on a fake database under one seeded scheduler: thousands of schedules, each repeatable by its seed.

world.py         the clock and the scheduler: cooperative tasks, one random choice at a time
machine.py       threads, locks, queues, time and chance of that world, in place of the standard library's
process.py       one process with the real crew of a runner, its real executor and its real end
database.py      the job table and its verbs, written by hand from the table of verbs, not from the statements
store.py         the methods of Store and Ear on that table, with lost answers, late landings, refusals and outages
block.py         a handler's own transaction
ledger.py        what has happened under each claim
checks.py        the invariants of the protocol, judged by the ledger whenever something lands or is told
hands.py         what must hold of the decisions of each loop, and of how it keeps at it
rest.py          what must be true at the end
profiles.py      what may go wrong
schedule.py      one schedule: jobs, people, faults, quiet, end
mutants.py       rules of the runner that are left out for the checks to find; broken_verbs.py those of the verbs
"""
