"""Shared parts of environments: package interface, task sets, scripted experts, demonstrations, dialogues."""
