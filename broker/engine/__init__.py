"""The embedded engine, and the subscriptions its users hold."""
