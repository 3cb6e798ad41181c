"""The tests. `python3 tests` runs all of them in environments of its own; see `__main__`."""
