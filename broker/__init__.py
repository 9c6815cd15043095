"""The database server: engine, log, queries, views, streams, and the service around them."""
