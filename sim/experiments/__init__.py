"""The thesis's traffic figures: what is run, drawn and told."""
