"""The console's pages: for each address the operations it asks for and the template it fills."""

from packhost.console.pages.table import ACTIONS, PAGES

__all__ = ["ACTIONS", "PAGES"]
