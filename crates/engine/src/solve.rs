//! The search for a gang's places, with members pinned and nodes forbidden.
