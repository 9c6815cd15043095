"""Hullcast processes on this host: run one, start others, stop them for certain."""
