"""Traces of events: from daily prices, or synthetic; one form on disk."""
