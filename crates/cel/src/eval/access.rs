//! Fields and elements, and optional access to them.

use super::{Evaluated, Evaluator, Fault, Node, Value, no_overload};
use crate::value::NoElements;

/// The element of a list at an index, or the value of a map at a key, if present.
fn get<'a>(of: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, NoElements> {
    let Value::List(list) = of else { return of.find(key) };
    let place = match key {
        Value::Int(number) => usize::try_from(*number).ok(),
        Value::Uint(number) => usize::try_from(*number).ok(),
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole numbers in range only"
        )]
        Value::Double(number) if number.fract() == 0.0 && (0.0..4e9).contains(number) => {
            Some(*number as usize)
        }
        Value::Double(_) => None,
        _ => return Err(NoElements),
    };
    Ok(place.and_then(|place| list.get(place)).cloned())
}

/// The error for a missing element.
fn missing(of: &Value<'_>, key: &Value<'_>) -> Fault {
    let key = match key {
        Value::String(text) => text.to_string(),
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        other => format!("of type {}", other.type_name()),
    };
    Fault::because(match of {
        Value::List(_) => format!("index out of bounds: {key}"),
        _ => format!("no such key: {key}"),
    })
}

/// The element or an error. Access to an optional yields an optional.
fn access<'a>(of: &Value<'a>, key: &Value<'a>) -> Evaluated<'a> {
    match of {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => opt_access(inner, key),
        _ => match get(of, key) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(missing(of, key)),
            Err(NoElements) => Err(no_overload("_[_]", &[of.clone(), key.clone()])),
        },
    }
}

/// Optional access to an element.
fn opt_access<'a>(of: &Value<'a>, key: &Value<'a>) -> Evaluated<'a> {
    match of {
        Value::Optional(None) => Ok(Value::Optional(None)),
        Value::Optional(Some(inner)) => opt_access(inner, key),
        _ => Ok(get(of, key).ok().flatten().map_or(Value::Optional(None), Value::some)),
    }
}

/// Whether a node is a path. Access to a path costs no extra unit.
pub(super) fn is_path(node: &Node) -> bool {
    matches!(
        node,
        Node::Device
            | Node::Local(_)
            | Node::Select(..)
            | Node::OptSelect(..)
            | Node::Index(_)
            | Node::OptIndex(_)
    )
}

impl<'a> Evaluator<'a, '_> {
    /// Evaluates the operand of an access. It costs one unit, and one more if it is not a path.
    fn operand(&mut self, node: &Node) -> Evaluated<'a> {
        let operand = self.eval(node)?;
        self.tools.budget.charge(if is_path(node) { 1 } else { 2 })?;
        Ok(operand)
    }

    pub(super) fn select(&mut self, operand: &Node, field: &Value<'static>) -> Evaluated<'a> {
        access(&self.operand(operand)?, field)
    }

    pub(super) fn has(&mut self, operand: &Node, field: &Value<'static>) -> Evaluated<'a> {
        let operand = self.eval(operand)?;
        let is_there = match &operand {
            Value::Optional(_) => {
                matches!(opt_access(&operand, field)?, Value::Optional(Some(_)))
            }
            _ => matches!(get(&operand, field), Ok(Some(_))),
        };
        Ok(Value::Bool(is_there))
    }

    pub(super) fn opt_select(&mut self, operand: &Node, field: &Value<'static>) -> Evaluated<'a> {
        let found = opt_access(&self.operand(operand)?, field)?;
        if let Value::Optional(None) = found {
            // Kubernetes charges this access only if there is a value.
            self.tools.budget.refund();
        }
        Ok(found)
    }

    pub(super) fn index(&mut self, [operand, index]: &[Node; 2]) -> Evaluated<'a> {
        let operand = self.operand(operand)?;
        let index = self.eval(index)?;
        access(&operand, &index)
    }

    pub(super) fn opt_index(&mut self, [operand, index]: &[Node; 2]) -> Evaluated<'a> {
        let operand = self.operand(operand)?;
        let index = self.eval(index)?;
        opt_access(&operand, &index)
    }

    /// `or` and `orValue`: the alternative is evaluated only if needed.
    pub(super) fn or_else(&mut self, [first, second]: &[Node; 2], is_value: bool) -> Evaluated<'a> {
        match self.eval(first)? {
            Value::Optional(Some(value)) if is_value => Ok((*value).clone()),
            value @ Value::Optional(Some(_)) => Ok(value),
            Value::Optional(None) => self.eval(second),
            other => Err(no_overload("or", &[other])),
        }
    }

    pub(super) fn opt_map(&mut self, [target, body]: &[Node; 2], is_flat: bool) -> Evaluated<'a> {
        let target = self.eval(target)?;
        self.tools.budget.charge(2)?;
        match target {
            Value::Optional(None) => Ok(Value::Optional(None)),
            Value::Optional(Some(value)) => {
                self.tools.budget.charge(1)?;
                let value = self.within(Ok((*value).clone()), body)?;
                Ok(if is_flat { value } else { Value::some(value) })
            }
            other => Err(no_overload("optMap", &[other])),
        }
    }
}
