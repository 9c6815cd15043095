"""What all benchmarks share: how one is declared, run, judged and shown, and the processes it is measured with."""
