"""The methods R3L is compared with: one readable file each, none of which knows an environment."""
