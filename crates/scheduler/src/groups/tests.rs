//! Groups from objects and pods.

mod controllers;
mod examples;
mod fixtures;
mod membership;
mod objects;
mod property;

use super::*;
