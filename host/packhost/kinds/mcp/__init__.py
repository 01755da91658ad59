"""Upstream MCP servers: what they say of themselves, how they are run, and calls that go to them."""
