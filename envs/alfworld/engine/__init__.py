"""The world: TextWorld's PDDL engine and the text of its games."""
