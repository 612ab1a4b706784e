//! Whom to move or evict so that something fits, with the least disturbance.
