"""packhost: one MCP server in front of every tool that an agent may use."""
