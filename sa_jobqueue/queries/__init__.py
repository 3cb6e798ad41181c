"""Every read, one module per question: Core constructs, no strings of SQL, nothing executed."""
