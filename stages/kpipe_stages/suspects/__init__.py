"""What production does otherwise than training before the network: the usual suspects, each as code, and the search for the one that did it."""
