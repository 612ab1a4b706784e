//! Evaluates loops.

use std::sync::Arc;

use super::{Evaluated, Evaluator, Fault, LIST_PRICE, Node, Value, no_overload};
use crate::node::{Fold, Step};

impl<'a> Evaluator<'a, '_> {
    pub(super) fn fold(&mut self, fold: &Fold) -> Evaluated<'a> {
        let range = self.eval(&fold.range)?;
        let mut accumulator = self.eval(&fold.init);
        match &range {
            Value::List(list) => {
                for (index, element) in list.iter().enumerate() {
                    let index = Value::Int(i64::try_from(index).unwrap_or(i64::MAX));
                    let going = self.turn(fold, &mut accumulator, &index, element, element)?;
                    if !going {
                        break;
                    }
                }
            }
            other => {
                let map = other.as_map().ok_or_else(|| {
                    no_overload("a macro over elements", std::slice::from_ref(other))
                })?;
                self.tools.budget.work(map.len())?;
                for (key, value) in map.iter() {
                    if !self.turn(fold, &mut accumulator, key, value, key)? {
                        break;
                    }
                }
            }
        }
        self.within(accumulator, &fold.result)
    }

    /// One iteration; returns whether the loop continues.
    fn turn(
        &mut self,
        fold: &Fold,
        accumulator: &mut Evaluated<'a>,
        first: &Value<'a>,
        second: &Value<'a>,
        only: &Value<'a>,
    ) -> Result<bool, Fault> {
        // An iteration may cost nothing but is still work.
        self.tools.budget.work(4)?;
        let depth = self.locals.len();
        self.locals.push(std::mem::replace(accumulator, Ok(Value::Null)));
        if fold.has_second {
            self.locals.extend([Ok(first.clone()), Ok(second.clone())]);
        } else {
            self.locals.push(Ok(only.clone()));
        }
        let going = match self.eval(&fold.condition) {
            Ok(Value::Bool(going)) => Ok(going),
            Err(Fault::TooCostly) => Err(Fault::TooCostly),
            _ => Ok(true),
        };
        let going = going.and_then(|going| {
            if going {
                self.step(&fold.step, depth)?;
            }
            Ok(going)
        });
        self.locals.truncate(depth + 1);
        *accumulator = self.locals.pop().unwrap_or(Ok(Value::Null));
        going
    }

    /// Computes the accumulator, the variable at `place`.
    fn step(&mut self, step: &Step, place: usize) -> Result<(), Fault> {
        let next = match step {
            Step::Next(node) => self.eval(node),
            Step::Append { filter, element } => {
                match self.append(filter.as_ref(), element, place) {
                    Ok(()) => return Ok(()),
                    Err(fault) => Err(fault),
                }
            }
        };
        if matches!(next, Err(Fault::TooCostly)) {
            return Err(Fault::TooCostly);
        }
        if let Some(slot) = self.locals.get_mut(place) {
            *slot = next;
        }
        Ok(())
    }

    fn append(&mut self, filter: Option<&Node>, element: &Node, place: usize) -> Result<(), Fault> {
        if let Some(filter) = filter {
            match self.eval(filter)? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(()),
                other => return Err(no_overload("_?_:_", &[other])),
            }
        }
        self.tools.budget.charge(1)?;
        let is_constant = matches!(element, Node::Const(_));
        let element = self.eval(element);
        self.tools.budget.charge(if is_constant { 1 } else { LIST_PRICE + 1 })?;
        let element = element?;
        match self.locals.get_mut(place) {
            Some(Ok(Value::List(list))) => {
                Arc::make_mut(list).push(element);
                Ok(())
            }
            Some(Err(fault)) => Err(fault.clone()),
            _ => Err(Fault::error("a loop has no list to add to")),
        }
    }
}
