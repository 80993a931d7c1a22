"""The plan of a grid: cells, jobs, resources, status, doctor. May import everything but report and cli."""
