"""MCP towards clients: lists tools, takes calls to the gate, asks people, says what came of it."""
