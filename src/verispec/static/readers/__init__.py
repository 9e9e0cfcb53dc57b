"""Read source files into file summaries: `pool` reads many, `extraction` one, the other modules one aspect each."""
