"""Operations of the toolset `agent`: few, with short answers, for an agent's daily work."""
