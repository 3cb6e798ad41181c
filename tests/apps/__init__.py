"""Small applications that runner processes of the tests load."""
