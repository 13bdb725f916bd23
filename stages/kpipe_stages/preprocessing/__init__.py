"""The parts of `kpipe_stages.preprocess`: bounded reading, decoding, steps, casts."""
