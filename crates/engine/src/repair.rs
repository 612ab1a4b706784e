//! Repair: failed and late members, growth, defragmentation, preemption; each is the one search with
//! pins.
