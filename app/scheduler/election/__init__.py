"""Leader election with a Lease: rules as pure functions, and the elector that applies them."""
