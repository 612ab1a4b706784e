//! `PlacementPolicy`: how units are weighed, and what must hold.
