"""A model of the job table beside the real one: random histories on both, which must never differ in any column.

model.py       the table of verbs, written by hand from the design and not from the statements
clock.py       a database whose clock stands still until a test moves it
machine.py     the rules: what runners, people and networks may do, in any order
mutants.py     statements with one rule left out each
"""
