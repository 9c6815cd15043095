"""Updates become messages: a channel per shape, one file per kind of subscription."""
