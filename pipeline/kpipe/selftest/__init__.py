"""The gate, tested: faults are planted one at a time into a healthy setup, and what the gate says of each is written down."""
