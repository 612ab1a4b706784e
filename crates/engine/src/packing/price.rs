//! Octavo's packing policy.
