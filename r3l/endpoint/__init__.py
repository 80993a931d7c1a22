"""Models behind a server that speaks OpenAI's protocol: the client, and policies that sample there."""
