//! Evaluates a compiled expression.
//!
//! `&&`, `||` and the macros made of them have a result if one operand suffices, even if another
//! fails. A loop's accumulator may therefore hold an error.

mod access;
mod folds;

use crate::DeviceView;
use crate::budget::Budget;
use crate::fault::Fault;
use crate::function::{Function, Tools};
use crate::node::Node;
use crate::patterns::Patterns;
use crate::price::{LIST_PRICE, MAP_PRICE};
use crate::value::{Map, Value, no_overload};

/// The value of an expression for a device, and its cost.
pub(crate) fn eval<'a>(
    node: &Node,
    patterns: &Patterns,
    view: DeviceView<'a>,
) -> (Result<Value<'a>, Fault>, Budget) {
    let tools = Tools { budget: Budget::default(), patterns };
    let mut evaluator = Evaluator { view, locals: Vec::new(), tools };
    let result = evaluator.eval(node);
    (result, evaluator.tools.budget)
}

type Evaluated<'a> = Result<Value<'a>, Fault>;

/// An evaluation.
struct Evaluator<'a, 'p> {
    view: DeviceView<'a>,
    /// Macro variables in scope, outermost first.
    locals: Vec<Evaluated<'a>>,
    tools: Tools<'p>,
}

impl<'a> Evaluator<'a, '_> {
    fn eval(&mut self, node: &Node) -> Evaluated<'a> {
        match node {
            Node::Const(value) => Ok(value.clone()),
            Node::Device => {
                self.tools.budget.charge(1)?;
                Ok(Value::Device(self.view))
            }
            Node::Local(place) => {
                self.tools.budget.charge(1)?;
                match self.locals.get(*place) {
                    Some(value) => value.clone(),
                    None => Err(Fault::error("a variable has no value")),
                }
            }
            Node::Select(operand, field) => self.select(operand, field),
            Node::Has(operand, field) => self.has(operand, field),
            Node::OptSelect(operand, field) => self.opt_select(operand, field),
            Node::Index(parts) => self.index(parts),
            Node::OptIndex(parts) => self.opt_index(parts),
            Node::Call(function, args) => self.call(function, args),
            Node::OrElse { parts, is_value } => self.or_else(parts, *is_value),
            Node::Member(element, list) => {
                let element = self.eval(element)?;
                if !element.can_be_looked_up() {
                    return Err(no_overload("@in", &[element]));
                }
                self.tools.budget.work(list.len())?;
                let mut is_there = false;
                for known in list {
                    is_there |= crate::value::equal(known, &element, &mut self.tools.budget)?;
                }
                Ok(Value::Bool(is_there))
            }
            Node::And(terms) => self.logic(terms, false),
            Node::Or(terms) => self.logic(terms, true),
            Node::Cond(parts) => {
                let [condition, yes, no] = &**parts;
                let branch = match self.eval(condition)? {
                    Value::Bool(true) => yes,
                    Value::Bool(false) => no,
                    other => return Err(no_overload("_?_:_", &[other])),
                };
                let value = self.eval(branch);
                if access::is_path(branch) {
                    // Kubernetes does not charge for a branch that is only a path.
                    self.tools.budget.refund();
                }
                value
            }
            Node::List(elements) => self.list(elements),
            Node::Map(entries) => self.map(entries),
            Node::Fold(fold) => self.fold(fold),
            Node::Bind(parts) => {
                let [value, body] = &**parts;
                let value = self.eval(value);
                self.within(value, body)
            }
            Node::OptMap { parts, is_flat } => self.opt_map(parts, *is_flat),
        }
    }

    /// Evaluates with one more variable. A value that exceeds the budget fails at once.
    fn within(&mut self, value: Evaluated<'a>, body: &Node) -> Evaluated<'a> {
        if matches!(value, Err(Fault::TooCostly)) {
            return value;
        }
        self.locals.push(value);
        let result = self.eval(body);
        self.locals.pop();
        result
    }

    fn call(&mut self, function: &'static Function, args: &[Node]) -> Evaluated<'a> {
        match args {
            [] => self.run(function, &[]),
            [one] if function.name == "@not_strictly_false" => self.not_strictly_false(one),
            [one] => {
                let one = self.argument(one)?;
                self.run(function, &[one])
            }
            [one, two] => {
                let pair = [self.argument(one)?, self.argument(two)?];
                self.run(function, &pair)
            }
            _ => {
                let mut values = Vec::with_capacity(args.len());
                for arg in args {
                    values.push(self.argument(arg)?);
                }
                self.run(function, &values)
            }
        }
    }

    /// Evaluates an argument. A call with a failed argument still costs one unit.
    fn argument(&mut self, node: &Node) -> Evaluated<'a> {
        let value = self.eval(node);
        if value.is_err() {
            self.tools.budget.charge(1)?;
        }
        value
    }

    fn run(&mut self, function: &'static Function, args: &[Value<'a>]) -> Evaluated<'a> {
        // Pricing counts the characters of text, which takes time for long text.
        for arg in args {
            if let Value::String(text) = arg {
                self.tools.budget.work(text.len() / 32)?;
            }
        }
        // A price that does not depend on the result is charged first, before the work is done.
        if !function.price.needs_result() {
            self.tools.budget.charge(function.price.of(args, None))?;
            return (function.run)(args, &mut self.tools);
        }
        let result = (function.run)(args, &mut self.tools)?;
        self.tools.budget.charge(function.price.of(args, Some(&result)))?;
        Ok(result)
    }

    /// Whether a loop continues: only a false condition ends it, not an error.
    fn not_strictly_false(&mut self, condition: &Node) -> Evaluated<'a> {
        let condition = self.eval(condition);
        self.tools.budget.charge(1)?;
        match condition {
            Err(Fault::TooCostly) => Err(Fault::TooCostly),
            Ok(value @ Value::Bool(_)) => Ok(value),
            _ => Ok(Value::Bool(true)),
        }
    }

    /// `&&` and `||`: the deciding value, else the first error, else the other value.
    fn logic(&mut self, terms: &[Node], decides: bool) -> Evaluated<'a> {
        let mut failed = None;
        for term in terms {
            let fault = match self.eval(term) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(value)),
                Ok(Value::Bool(_)) => continue,
                Ok(other) => no_overload(if decides { "_||_" } else { "_&&_" }, &[other]),
                Err(Fault::TooCostly) => return Err(Fault::TooCostly),
                Err(fault) => fault,
            };
            failed.get_or_insert(fault);
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    /// The value of an optional element; `None` if it is empty.
    fn element(&mut self, node: &Node, is_optional: bool) -> Result<Option<Value<'a>>, Fault> {
        let value = self.eval(node)?;
        match (is_optional, value) {
            (false, value) => Ok(Some(value)),
            (true, Value::Optional(inner)) => Ok(inner.map(|inner| (*inner).clone())),
            (true, other) => Err(no_overload("an optional element", &[other])),
        }
    }

    fn list(&mut self, elements: &[(bool, Node)]) -> Evaluated<'a> {
        let mut list = Vec::with_capacity(elements.len());
        for (is_optional, element) in elements {
            list.extend(self.element(element, *is_optional)?);
        }
        self.tools.budget.charge(LIST_PRICE)?;
        Ok(Value::list(list))
    }

    fn map(&mut self, entries: &[(bool, Node, Node)]) -> Evaluated<'a> {
        let mut map = Map::default();
        for (is_optional, key, value) in entries {
            let key = self.eval(key)?;
            let Some(value) = self.element(value, *is_optional)? else { continue };
            if !map.insert(key, value) {
                return Err(Fault::error("a map key must be a bool, a number or text"));
            }
        }
        self.tools.budget.charge(MAP_PRICE)?;
        Ok(Value::Map(map.into()))
    }
}
