"""What users hold: the SDK, the command line, the Spark source, the demo and examples."""
