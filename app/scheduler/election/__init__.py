"""Leader election on a Lease: the rules, and the elector that follows them."""
