"""What to do next: work with owners and costs, policies that pick, and the driver that runs it."""
