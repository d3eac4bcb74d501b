"""Tests: unit, integration, system, replay, chaos, conformance."""
