"""A PostgreSQL job queue that is a SQLAlchemy extension."""
