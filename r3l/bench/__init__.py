"""Speed and memory: of environment engines, rollouts, training, the grader. May import everything but report and
cli."""
