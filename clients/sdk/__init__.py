"""The SDK: what `hullcast.connect` gives."""
