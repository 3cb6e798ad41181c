"""Every write, one module per verb: Core constructs, no strings of SQL, nothing executed."""
