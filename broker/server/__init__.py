"""The server as a process: requests in, log, replies and messages out."""
