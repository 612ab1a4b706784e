//! Groups as objects and pods announce them.

mod controllers;
mod examples;
mod fixtures;
mod membership;
mod objects;
mod property;

use super::*;
