//! Device selectors: CEL expressions over a device, with the meaning that they have in Kubernetes 1.36.
//!
//! ```text
//! text --lexer, parser, macros--> tree --check (types, names, constants)--> node --eval--> bool
//! ```
//!
//! An expression sees `device.driver`, `device.attributes[domain].name`,
//! `device.capacity[domain].name` and `device.allowMultipleAllocations`. A name without a domain
//! belongs to the driver's; an unknown domain is an empty map; a missing attribute is an error, which
//! `has()`, `in`, `.?` and `orValue` avoid. Attributes are of the type any: what is done with them is
//! checked as the expression runs.
//!
//! The language is evaluated here and not by a crate: it must be typed, priced and bounded as in
//! Kubernetes, where an expression that costs more than a million units fails, and no text that a
//! user writes may end the program. All walks over an expression are bounded in depth, all work in
//! amount. What cannot be evaluated is an error and never true.
//!
//! Answers and costs are compared with those of Kubernetes' own evaluator (`testdata/selectors.txt`).
//! Differences, each an error here where Kubernetes has a value:
//! - no points in time (`timestamp`), no web addresses (`url`), no messages (`google.protobuf…{}`), no
//!   `format.uri/byte/date/datetime`, no `%e` in `format`, no authorizer (which has no use here);
//! - brackets nest 64 deep (250), operators 250; patterns compile to at most 256 KiB; quantities hold
//!   128 bits; bytes and elements that an evaluation copies or compares are bounded;
//! - attributes that are lists are not read, as the feature is off by default.
//!
//! And: `optMap` costs its target once, not twice, and a part that fails may cost a few units less;
//! where Kubernetes' evaluator itself panics, a part that fails may be absorbed by `||`.

#![forbid(unsafe_code)]

pub mod quantity;

mod ast;
mod budget;
mod cache;
mod check;
mod device;
mod error;
mod eval;
mod fault;
mod formats;
mod function;
mod lexer;
mod library;
mod macros;
mod node;
mod parser;
mod patterns;
mod price;
mod selector;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub use budget::COST_LIMIT;
pub use cache::SelectorCache;
pub use device::{AttributeValue, DeviceFields, DeviceView};
pub use error::CelError;
pub use quantity::Quantity;
pub use selector::Selector;
