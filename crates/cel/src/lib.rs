//! Device selectors: CEL expressions over a device, with the semantics of Kubernetes 1.36.
//!
//! ```text
//! text --lexer, parser, macros--> tree --check (types, names, constants)--> node --eval--> bool
//! ```
//!
//! An expression reads `device.driver`, `device.attributes[domain].name`,
//! `device.capacity[domain].name` and `device.allowMultipleAllocations`. A name without a domain
//! belongs to the driver's domain. An unknown domain is an empty map. A missing attribute is an
//! error, which `has()`, `in`, `.?` and `orValue` avoid. Attributes have the type any, so their use
//! is checked at run time.
//!
//! The crate exists because selectors must be typed, priced and bounded as in Kubernetes. There an
//! expression that costs more than a million units fails. No text that a user writes may crash the
//! program: all recursion is bounded in depth, and all work in amount. An expression that cannot be
//! evaluated is an error and never true.
//!
//! Tests compare results and costs with those of Kubernetes' own evaluator
//! (`testdata/selectors.txt`). The following are errors here where Kubernetes has a value:
//! - timestamps (`timestamp`), URLs (`url`), messages (`google.protobuf…{}`),
//!   `format.uri/byte/date/datetime`, `%e` in `format`, and the authorizer, which has no use here;
//! - more than 64 nested brackets (Kubernetes: 250), patterns that compile to more than 256 KiB,
//!   and quantities beyond 128 bits;
//! - evaluations that copy or compare more bytes and elements than the limit;
//! - attributes with list values, whose feature is off by default.
//!
//! Two small differences remain. `optMap` charges its target once instead of twice, and a failing
//! part may cost a few units less. Where Kubernetes' evaluator panics, `||` may absorb the failing
//! part.

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
