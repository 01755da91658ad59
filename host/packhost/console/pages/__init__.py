"""The console's pages: for each address, in `table`, the operations it asks for and the template it fills."""
