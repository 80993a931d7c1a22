"""The plan of a grid: runs, jobs, resources, status, doctor. It may import all but r3l.report and r3l.cli."""
