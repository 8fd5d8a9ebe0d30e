"""Operations of the toolset `agent`: few, with short responses, for an agent's everyday work."""
