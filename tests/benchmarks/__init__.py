"""Benchmarks, one file for each question; `python3 tests bench [NAME ...]` runs them, the tests never do.

A figure alone says more about the machine and the hour than about the queue. So each benchmark measures, in the same
pass and in turns, what the server or SQLAlchemy itself can do, and prints the ratio of the medians.
"""
