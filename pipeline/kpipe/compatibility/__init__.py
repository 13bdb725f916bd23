"""``kpipe compatibility``: the zoo through every runtime, and the table of what came of it."""
