"""Where handler code runs: the protocol, and one module for each kind of executor."""
