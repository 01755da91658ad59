"""What connects MCP clients to a workspace: exact configuration for each, and whether it is there already."""
