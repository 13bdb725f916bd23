"""Checkpoints of a training: what is in one, how it gets on the disk and back, and whether it is of this very training."""
