//! Upper bounds on what fits, for each domain and shape, kept by deltas.
