"""What two or more services share: the pure core, and the thin tools around Postgres, NATS and files."""
