"""Two runners on a fake database under one seeded scheduler: thousands of schedules, each repeatable by its seed.

world.py      the clock and the scheduler: cooperative tasks, one random choice at a time
database.py   the job table and its verbs, written by hand from the table of verbs, not from the statements
store.py      the Store's methods on that table, with lost answers, late landings, refusals and outages
runner.py     the real steps, hands, engine, book and attempts of one runner, without threads
checks.py     what must hold at every moment and at the end
schedule.py   one schedule: jobs, faults, quiet, end
"""
