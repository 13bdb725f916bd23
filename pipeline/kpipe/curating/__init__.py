"""Keeping a golden set: verified, added to, mined from a pool. The functions behind ``kpipe golden``.

A layer of its own between ``api`` and ``running``: it starts workers as ``running`` does and reads their answers as ``judging`` does, and those
two are siblings that know nothing of each other. What it decides is which raw file joins the set, never whether a model may ship.
"""
