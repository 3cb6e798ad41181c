"""How jobs come in: `enqueue()` makes them, the unit of work or `enqueue_many()` inserts them."""
