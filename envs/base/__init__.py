"""What environments share: the package contract, task sets, scripted experts and their demonstrations, dialogues."""
