"""Sign-off: an approved run sealed as a bundle, the store that keeps bundles, and what can be asked of both.

`open_bundle` reads a bundle, wherever it lies; `find_bundle` finds one by path, by digest or by product; a `Store` keeps them.
"""

from kpipe.signoff.bundle import Bundle, open_bundle

__all__ = ["Bundle", "open_bundle"]
