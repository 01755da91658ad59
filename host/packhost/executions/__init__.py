"""Runs: started, waited for, paused, resumed and ended, in the host and not in a request."""
