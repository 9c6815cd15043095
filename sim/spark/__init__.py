"""Spark: sessions that leave nothing behind, and what they need of machines and clusters."""
