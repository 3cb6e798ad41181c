"""The hands of the loops: what each action of a pure step does to the store, the book and the executor.

One class for each loop; those that talk to the database have a connection of their own. When to do what is decided in
the steps; what the rows say afterwards in the statements.
"""
