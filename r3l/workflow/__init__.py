"""The plan of a grid: runs, jobs, resources, status, doctor. May import all but report and cli."""
