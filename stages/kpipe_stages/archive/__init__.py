"""Looking into a ``.keras`` file without running any of it: standard library, numpy and h5py only.

Every step bounds what the next one may cost, and refuses before it: file, zip structure, members, JSON, names of code, weights.
"""
