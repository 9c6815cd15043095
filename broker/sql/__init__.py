"""SQL text becomes shapes and predicates of subscriptions, or an SqlError."""
