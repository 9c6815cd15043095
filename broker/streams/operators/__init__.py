"""Operators: what is done with micro-batches on their way to a query's results, one file each."""
