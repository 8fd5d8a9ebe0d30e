"""What daily tasks cost an agent: calls, bytes and tokens, by toolset."""
