"""Fixtures and helpers of the tests, by subject."""
