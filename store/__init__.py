"""Column contracts, the run file and the errors: the bottom that every stage stands on."""
