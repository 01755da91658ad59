"""Operations on a running host, for the command line and whatever else a person uses."""
