"""A model of the job table beside the real one: random histories on both, which must never differ in any column.

model.py          the table of verbs, written by hand from the design and not from the statements
rows.py           its rows, and the words in which it is asked and answers
clock.py          a database whose clock stands still until a test moves it
ground.py         the connections that all histories use
history.py        one history: its state on both sides, and the comparison after every step
invariants.py     what holds of every row and of every change, whatever the model says
runner_steps.py   the steps of runners, with lost, late and stale statements
people_steps.py   the steps of people and applications
machine.py        all steps, with time and another transaction
corners.py        histories written down
mutants.py        statements with one rule left out each
"""
