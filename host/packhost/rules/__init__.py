"""What may be done: scopes, policy, autonomy, approvals and grants; values in, values out.

Nothing here reads a file, a clock or a manifest. Each module states the precedence that it applies.
"""
