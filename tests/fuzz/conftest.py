"""The number of examples: few in a normal run, many with `--hypothesis-profile=fuzz`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("quick", deadline=None)
settings.register_profile(
    "fuzz", max_examples=20_000, deadline=None, suppress_health_check=list(HealthCheck)
)
if settings.get_current_profile_name() == "default":
    settings.load_profile("quick")
