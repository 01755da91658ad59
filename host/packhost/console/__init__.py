"""The console: a host's approvals, runs, tools and record in a browser, over `control.base.Control` alone."""
