"""Rules: from YAML to conditions and actions, and from there to a plan. No I/O."""
