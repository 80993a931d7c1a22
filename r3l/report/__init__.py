"""Tables and figures, made offline from the files that runs leave."""
