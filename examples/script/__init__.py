"""A script with plain SQLAlchemy, its model and its jobs in one file; `python3 examples script` runs it."""
