"""The methods with which R3L is compared: one file each; no method knows an environment."""
