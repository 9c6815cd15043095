"""`hullcast bench streams`: operators, joins in bounded memory and live streams, beside baselines."""

#: The sections, in order, and what each one shows; here, because all else needs the extra `sim`.
STREAM_SECTIONS = {
    "path": "tuples a second through three operators, in the engine, beside NumPy",
    "join": "tuples a second through window joins, in the engine, with and without bounded memory",
    "decisions": "what it takes to decide which tuple a bounded join drops, by policy",
    "scheduling": "the part of the time that is spent on deciding which operator runs, by policy",
    "bursts": "peak queue memory of four operators, by policy, beside the simulator",
    "filters": "tuples a second to 10,000 filters in four client processes, beside a table",
    "derived": "a join of two streams in a server: throughput, latency, and what the push path notices",
}
