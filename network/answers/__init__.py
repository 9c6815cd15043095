"""What messages do to the answers of subscriptions, the same for local and remote ones."""
