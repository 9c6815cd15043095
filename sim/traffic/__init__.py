"""What a trace costs on the wire, event by event, in each of the ways that Xie (2007) compares."""
