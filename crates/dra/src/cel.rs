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

mod ast;
mod cache;
mod check;
mod cost;
mod error;
mod eval;
mod fault;
mod lexer;
mod library;
mod macros;
mod node;
mod parser;
mod types;
mod value;

#[cfg(test)]
mod tests;

pub use cache::Selectors;
pub use cost::COST_LIMIT;
pub use error::CelError;

use check::Checked;
use cost::Budget;
use fault::Fault;
use value::{Semver, Value};

use crate::{AttributeValue, Device};

/// Longest expression in bytes: `CELSelectorExpressionMaxLength` of `resource.k8s.io`.
const MAX_LENGTH: usize = 10 * 1024;

/// A device as a selector sees it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceView<'a> {
    /// Name of the driver: the domain of names that have none.
    pub driver: &'a str,
    /// The device.
    pub device: &'a Device,
}

/// A compiled expression.
#[derive(Debug)]
pub struct Selector {
    expression: String,
    checked: Checked,
}

impl Selector {
    /// Compiles an expression; an error where it has no meaning or can never be a bool.
    pub fn compile(expression: &str) -> Result<Self, CelError> {
        if expression.len() > MAX_LENGTH {
            return Err(CelError::TooLong {
                expression: expression.to_owned(),
                length: expression.len(),
            });
        }
        let checked = parser::parse(expression).and_then(|tree| check::check(&tree));
        let checked = checked.map_err(|error| CelError::Compile {
            expression: expression.to_owned(),
            at: expression.get(..error.at).map_or(0, |before| before.chars().count()) + 1,
            why: error.why,
        })?;
        Ok(Self { expression: expression.to_owned(), checked })
    }

    /// The text that was compiled.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Whether the device is selected. Equal devices of one driver give equal answers: evaluate once
    /// for all of them.
    pub fn matches(&self, device: DeviceView<'_>) -> Result<bool, CelError> {
        self.matches_at(device, &mut 0)
    }

    /// As [`matches`](Self::matches); adds to `cost` what it cost, in the units of Kubernetes, of which
    /// [`COST_LIMIT`] are the most, and as much again for what is copied or compared.
    pub fn matches_at(&self, device: DeviceView<'_>, cost: &mut u64) -> Result<bool, CelError> {
        let expression = || self.expression.clone();
        let name = || device.device.name.clone();
        let (result, budget) = self.evaluate(device);
        *cost = cost.saturating_add(budget.spent());
        let result = match result {
            Ok(Value::Bool(is_match)) => return Ok(is_match),
            Ok(other) => {
                let found = other.type_name();
                return Err(CelError::NotBool { expression: expression(), device: name(), found });
            }
            Err(fault) => fault,
        };
        Err(match result {
            Fault::Error(why) => CelError::Runtime {
                expression: expression(),
                device: name(),
                why: why.into_owned(),
            },
            Fault::TooCostly => CelError::TooCostly { expression: expression(), device: name() },
        })
    }

    /// The value for a device. A version that is none makes every expression fail, as in Kubernetes.
    fn evaluate<'a>(&self, device: DeviceView<'a>) -> (Result<Value<'a>, Fault>, Budget) {
        for (name, value) in &device.device.attributes {
            if let AttributeValue::Version(text) = value
                && Semver::parse(text).is_none()
            {
                let why = format!("attribute {name} has version {text:?}, which is not semantic");
                return (Err(Fault::because(why)), Budget::default());
            }
        }
        eval::eval(&self.checked.node, &self.checked.patterns, device)
    }
}
