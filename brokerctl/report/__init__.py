"""Results of runs, as text, TAP and JUnit: records in, text out."""
