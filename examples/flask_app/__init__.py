"""Flask-SQLAlchemy with a job for each order: models.py, jobs.py, app.py. `python3 examples flask` runs it."""
