"""How each format's precision variants are made; one module a format, each with ``make``."""
