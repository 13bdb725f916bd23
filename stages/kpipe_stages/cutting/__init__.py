"""Cut a model open between its layers: every output inside becomes an output of the model."""
