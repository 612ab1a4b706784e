//! Groups as objects and pods announce them.

mod fixtures;
mod membership;

use super::*;
