"""Examples: one folder each. `python3 examples` runs the main one."""
