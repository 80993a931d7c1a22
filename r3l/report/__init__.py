"""Tables, figures and the HTML report, made offline from the files that runs leave.

May import core, config, runs, evaluation and workflow (the plan and its status); only the CLI imports it.
"""
