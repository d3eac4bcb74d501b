"""Tests: chaos."""
