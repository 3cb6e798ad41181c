"""The hands of the loops: what each action of a pure step does to the store, the book and the executor.

One class for each loop, each with a store (a connection) of its own. When to do what is decided in the steps; what the
rows say afterwards in the statements.
"""
