"""Training: the optimiser step, log-probabilities, and rows that share a beginning."""
