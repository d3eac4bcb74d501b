"""Tests: replay."""
