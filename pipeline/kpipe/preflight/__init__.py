"""``kpipe preflight``: would this untrained architecture convert, load and agree?"""
