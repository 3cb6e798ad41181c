"""The story that `python3 examples` tells with the application: uploads, a killed runner, recovery, a check."""
