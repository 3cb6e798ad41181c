"""Every read of the library, one module per question: functions that return Core statements, built once."""
