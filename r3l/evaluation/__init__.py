"""Episodes to scores, and scores to statistics."""
