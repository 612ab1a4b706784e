//! The published policies to compare with.
