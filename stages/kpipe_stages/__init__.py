"""The workers of kpipe: one file a stage or runtime, numpy and one framework each.

Nothing here imports ``kpipe`` or its libraries, so a worker runs in an environment that holds one runtime and nothing else.
"""
