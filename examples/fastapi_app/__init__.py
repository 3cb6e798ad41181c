"""An async application with a job for each order: models.py, jobs.py, app.py. `python3 examples fastapi` runs it."""
