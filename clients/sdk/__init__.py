"""The SDK: what `hullcast.connect` gives.

For low latency a program calls `gc.collect(); gc.freeze()` once it has subscribed (see `clients.sdk.client.Client`).
"""
