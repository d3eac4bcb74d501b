"""Result tiers: where payloads live. One file a tier, one conformance suite for all."""
