"""Episodes side by side: environments in their own processes, a barrier at which episodes wait for each other."""
