"""What messages do to the answers of the subscriptions that hear them; the same for local and remote ones."""
