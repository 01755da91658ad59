"""Telling outside systems of what happens: signed, tried again, never in anybody's way."""
