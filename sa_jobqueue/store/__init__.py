"""Executes statements and queries; never commits a connection it was given; answers in frozen records."""
