"""The plan of a grid: runs, jobs, resources, status, doctor."""
