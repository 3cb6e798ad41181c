"""Runs the statements. Answers frozen records; never commits or rolls back a connection that it was given."""
