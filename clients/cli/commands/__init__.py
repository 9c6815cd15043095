"""The subcommands of `hullcast`, one module each."""
