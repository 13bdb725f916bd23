"""``kpipe diagnose``: the first layer whose output leaves the reference on a target's runtime, in a finished run."""
