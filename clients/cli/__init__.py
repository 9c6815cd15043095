"""The command line: commands, what they read and start."""
