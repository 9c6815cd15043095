"""A broker node as a process, and what it shares with the server: its children."""
