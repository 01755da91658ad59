"""Every change and look-up, as plain functions of a transaction: guards first, writes after."""
