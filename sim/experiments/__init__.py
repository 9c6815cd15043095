"""The traffic figures of Xie (2007): what is run, drawn and told."""
