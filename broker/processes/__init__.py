"""Child processes of a server: how they are started, watched and ended, and how both sides speak."""
