"""The methods with which R3L is compared: one file each, none of which knows an environment."""
