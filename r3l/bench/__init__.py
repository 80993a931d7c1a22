"""Speed and memory of engines, rollouts, training, the grader. May import all but workflow, report and cli."""
