"""The same works on other systems, each in an environment of its own: one file a system, and what they share."""
