"""Streamed replies without any I/O: bytes to events, events to one reply, every quantity bounded."""
