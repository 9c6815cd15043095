"""What to do next: work with an owner and a cost, policies that pick among it, and the driver that runs it."""
