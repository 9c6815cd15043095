"""Which standing joins a row affects, in the ways that Xie (2007), chapter 4, compares: for `hullcast bench joins`."""
