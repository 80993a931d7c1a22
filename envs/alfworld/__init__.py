"""ALFWorld household tasks on the real TextWorld PDDL engine."""
