"""Completion in the handler's own transaction: the handler's writes and the job's end, one commit, fenced by the token."""
