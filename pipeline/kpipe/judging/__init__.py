"""From what a run left behind to its record: pure functions over saved outputs. `kpipe.judging.judge` is where to begin."""
