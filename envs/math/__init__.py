"""Mathematics: problems with a final answer, real graders, one attempt or the paper's three."""
