"""What a trace costs on the wire, event by event, in each of the thesis's ways."""
