"""Broken documents, runs, requests and commands, and what each must be told; the fuzzer of the same parts."""
