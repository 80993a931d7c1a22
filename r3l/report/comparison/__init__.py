"""Methods against each other: differences, what could have been shown, seeds to plan, verdicts."""
