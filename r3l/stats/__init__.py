"""Intervals, comparisons, corrections, verdicts and power: the only place that judges a difference.

The interface is rliable's: a matrix of scores ``scores_S_T`` with one row for each training seed (run) and
one column for each task of one task set (Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of
the Statistical Precipice"). Seeds are the unit of replication; tasks are nested in seeds.

- :mod:`r3l.stats.intervals`: t-intervals over seeds, Wilson's and Newcombe's over tasks, the cluster
  bootstrap
- :mod:`r3l.stats.comparison`: :func:`~r3l.stats.comparison.compare_effects` judges a family of effects;
  corrections (Holm, Benjamini-Hochberg); every verdict's word; power and minimum detectable effect
- :mod:`r3l.stats.power`: seeds needed, the stopping rule
- :mod:`r3l.stats.profiles`: performance profiles

For example, two comparisons of one table, corrected together::

    effects = [Effect.paired(r3l_S_T, grpo_S_T), Effect.paired(r3l_S_T, raft_S_T)]
    for one in compare_effects(effects, correction="holm", alpha=0.05, margin=0.02):
        print(one.verdict, one.effect.interval, one.p_adjusted, one.mde)
"""
