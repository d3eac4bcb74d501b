"""Playbooks to read and to run; each is also a test."""
