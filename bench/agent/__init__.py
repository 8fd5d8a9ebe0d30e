"""The cost of daily tasks of an agent: calls, bytes and tokens, by toolset."""
