"""From a request to what a run leaves behind: plan, worker processes, the trip. `kpipe.running.orchestrate` is where to begin."""
