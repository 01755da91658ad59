"""The ways to a client: stdio, the workspace's socket and its relay, streamable HTTP and SSE."""
