//! What placements cost in each unit.
