"""The `/v1` API: runs, their events, questions, grants, tools and the record, for programs with a token."""
