"""Fetch 5,000 records over HTTP in parallel loops, store and join them in Postgres, verify them by SQL."""
