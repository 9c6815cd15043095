"""What is decided about views: which changes are propagated when, and by which SQL (VIEWS.md). Pure."""
