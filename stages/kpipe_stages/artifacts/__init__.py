"""One module a format: how it is written from the one trace, and how it is opened again and read."""
