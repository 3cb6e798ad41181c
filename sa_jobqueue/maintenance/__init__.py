"""What keeps the table healthy in every runner, without a leader: rescue of jobs whose runner is gone."""
