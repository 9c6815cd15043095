"""Settings of processes: declared once, read from defaults, a TOML file, the environment and flags."""
