//! A selector: compiled once, evaluated for many devices.

use crate::budget::Budget;
use crate::check::{self, Checked};
use crate::error::CelError;
use crate::fault::Fault;
use crate::value::{Semver, Value};
use crate::{AttributeValue, DeviceView, eval, parser};

/// Limit of an expression's length in bytes: `CELSelectorExpressionMaxLength` of `resource.k8s.io`.
const MAX_LENGTH: usize = 10 * 1024;

/// A compiled expression.
#[derive(Debug)]
pub struct Selector {
    expression: String,
    pub(crate) checked: Checked,
}

impl Selector {
    /// Compiles an expression. Fails if it is invalid or can never be a bool.
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

    /// The source text.
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Whether the device is selected. Equal devices of one driver give equal results, so one
    /// evaluation suffices for all of them.
    pub fn matches(&self, device: DeviceView<'_>) -> Result<bool, CelError> {
        self.matches_with_cost(device, &mut 0)
    }

    /// As [`matches`](Self::matches), and adds the cost to `cost`. An evaluation costs at most
    /// [`COST_LIMIT`](crate::COST_LIMIT) units, plus as much again for work.
    pub fn matches_with_cost(
        &self,
        device: DeviceView<'_>,
        cost: &mut u64,
    ) -> Result<bool, CelError> {
        let expression = || self.expression.clone();
        let name = || device.device.name().to_owned();
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

    /// The value for a device. As in Kubernetes, a malformed version attribute fails every
    /// expression.
    fn evaluate<'a>(&self, device: DeviceView<'a>) -> (Result<Value<'a>, Fault>, Budget) {
        for (name, value) in device.device.attributes() {
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
