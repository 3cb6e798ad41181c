"""Every write of the library, one module per verb: functions that return Core statements, built once.

**Prior art.** Que and GoodJob claim with session advisory locks, which a transaction pooler takes away. Oban, River and
pg-boss claim with `FOR UPDATE SKIP LOCKED` and mark the row, as here; most of them settle by id, so that a worker that
comes back late overwrites its successor. Graphile Worker and Procrastinate sort one index across all queues.

**Ours.** A claim writes a fresh token, and every later write of the runner joins on id *and* token. The token is NULL
unless the job is running (a CHECK says so), so that the token alone proves the status. Batches arrive as parallel arrays
and meet their rows in one locking CTE; a row that somebody else has locked is left out instead of waited for, and the
caller reads it without a lock afterwards. No statement reads a client's clock.

**Traps, each measured on a loaded table.**

- Claiming by CTE and `UPDATE ... FROM`: under a generic plan the LIMIT is guessed at a tenth of the table, the join
  becomes a hash join over a sequential scan (158 ms for ten jobs). `id = ANY(ARRAY(...))` is an InitPlan and stays on the
  primary key (0.8 ms).
- Joining a batch with its rows leaves the order to the planner. After an ANALYZE that has seen no lease, `lease_until >`
  is guessed to leave one row: the table is read, and the batch for each of its rows (190 ms for 1,000 completions among
  20,000 jobs, with the square of the batch). Hence a locking LATERAL for each id, which can't be turned around. A
  planner that sees a batch of 1,000 goes on to a hash join over the table, hence arrays that don't tell their length.
- `queue = ANY(...)` with ORDER BY sorts every candidate (750 ms at 900,000 ready): hence one LATERAL branch per queue.
- `ORDER BY priority, run_at` over due and future rows walks all future rows of a higher priority (14 ms at 300,000):
  hence one branch per priority with an equality on it.
- Under an old snapshot every claim walks over the index entries of all that was done since (0.11 ms for each thousand):
  hence marks, as one comparison of rows, which is one bound of the index. Many jobs have one due time, so that it needs
  the id as well. The marks' arrays are read as they arrive; a text that is cast would be read anew for each branch.
- One flat list of queue and priority pairs locks a quota per pair, more than there are slots: hence two nested limits.
- `status = 'running'` beside a token makes the planner take the small partial index and join it row by row with the
  batch (5 ms and 1,370 buffers for one id while a snapshot is held): hence no status test in a guard.
- A status as a parameter never matches a partial index in a generic plan: hence literals in the text.
- CHECKs are tested on the row as the snapshot saw it, before an UPDATE goes over to the version that its lock was
  waited for: a statement that waits for rows must write every column that a CHECK holds against its new status.
- now() is the start of the transaction and let an expired lease pass: hence statement_timestamp().
"""
