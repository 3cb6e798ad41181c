"""What `python3 examples fastapi`, `flask` and `script` do: run that example as its user would, show it, and check it.

Nothing here is needed to run the applications.
"""
