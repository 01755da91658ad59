"""Access tokens of authorization servers: their keys, what holds of a token, and whom it stands for."""
