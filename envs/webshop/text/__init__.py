"""The text side of WebShop: prompts, the reading of responses, ending rules."""
