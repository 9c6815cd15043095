"""Who may connect: keys of processes, what each key is allowed to do, and the check at the door."""
