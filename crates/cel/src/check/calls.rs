//! Checks calls: overload resolution and constant folding.

use super::{Checker, Expr, Found, Node, SyntaxError, Type, Value, error};
use crate::ast::{Kind, Literal};
use crate::function::{Function, Tools};
use crate::library::{FUNCTIONS, clauses};
use crate::patterns::Patterns;

/// Functions that are evaluated at compile time if their argument is constant.
const CONVERSIONS: [&str; 9] =
    ["bool", "bytes", "double", "duration", "dyn", "int", "string", "type", "uint"];

/// Functions whose second argument is a pattern.
const PATTERNS: [&str; 3] = ["matches", "find", "findAll"];

impl Checker {
    pub(super) fn call(
        &mut self,
        name: &str,
        target: Option<&Expr>,
        args: &[Expr],
        at: usize,
    ) -> Found {
        let is_format = usize::from(name == "format");
        self.formats += is_format;
        let found = self.call_of(name, target, args, at);
        self.formats -= is_format;
        found
    }

    fn call_of(&mut self, name: &str, target: Option<&Expr>, args: &[Expr], at: usize) -> Found {
        // The target may be part of the function's name: sets.contains.
        let qualified = target
            .and_then(Expr::qualified_name)
            .and_then(|prefix| FUNCTIONS.get(&*format!("{prefix}.{name}")));
        let (function, target) = match (qualified, FUNCTIONS.get(name)) {
            (Some(function), _) => (function, None),
            (None, Some(function)) => (function, target),
            (None, None) if matches!(name, "_[_]" | "_[?_]") => return self.index(name, args, at),
            (None, None) => return error(at, format!("undeclared reference to {name:?}")),
        };
        let mut nodes = Vec::with_capacity(args.len() + 1);
        let mut types = Vec::with_capacity(args.len() + 1);
        for arg in target.into_iter().chain(args) {
            let (node, found) = self.expr(arg)?;
            nodes.push(node);
            types.push(found);
        }
        let result = self.resolve(function, target.is_some(), &types, at)?;
        if let ("format", Some(template), [list]) = (name, target, args) {
            self.template(template, list, at)?;
        }
        Ok((self.node(function, nodes, at)?, result))
    }

    /// Checks a literal template against a literal list.
    fn template(&mut self, template: &Expr, list: &Expr, at: usize) -> Result<(), SyntaxError> {
        let (Kind::Literal(Literal::String(template)), Kind::List(elements)) =
            (&template.kind, &list.kind)
        else {
            return Ok(());
        };
        let verbs = clauses(template).map_err(|why| SyntaxError { at, why })?;
        if verbs.len() != elements.len() {
            let (verbs, values) = (verbs.len(), elements.len());
            return error(at, format!("format() has {verbs} clauses and {values} values"));
        }
        // The list was checked last.
        for (verb, found) in verbs.into_iter().zip(std::mem::take(&mut self.elements)) {
            self.formatted.push((at, verb, found));
        }
        Ok(())
    }

    /// The type of a call's result.
    fn resolve(
        &mut self,
        function: &Function,
        is_member: bool,
        args: &[Type],
        at: usize,
    ) -> Result<Type, SyntaxError> {
        let mut result: Option<Type> = None;
        for overload in function.called(is_member) {
            if overload.args.len() != args.len() {
                continue;
            }
            let variables = [self.unifier.fresh(), self.unifier.fresh()];
            let fresh = |number: usize| variables.get(number).cloned().unwrap_or(Type::Dyn);
            let wanted: Vec<Type> = overload.args.iter().map(|arg| arg.replace(&fresh)).collect();
            if self.unifier.fit_all(args.iter().zip(&wanted)) {
                let found = self.unifier.resolve(&overload.result.replace(&fresh));
                result = Some(match result {
                    None => found,
                    Some(before) if before.is_dynamic() || before == found => before,
                    Some(_) => Type::Dyn,
                });
            }
        }
        let Some(result) = result else {
            let types: Vec<String> = args.iter().map(|arg| self.settled(arg).to_string()).collect();
            let name = function.name;
            return error(at, format!("no overload of {name} takes {}", types.join(", ")));
        };
        Ok(result)
    }

    /// The node of a call.
    fn node(
        &mut self,
        function: &'static Function,
        mut args: Vec<Node>,
        at: usize,
    ) -> Result<Node, SyntaxError> {
        if CONVERSIONS.contains(&function.name)
            && let [Node::Const(value)] = &*args
        {
            return match (function.run)(std::slice::from_ref(value), &mut tools(&self.patterns)) {
                Ok(value) => Ok(Node::Const(value)),
                Err(_) => error(at, format!("{}() cannot convert this literal", function.name)),
            };
        }
        if PATTERNS.contains(&function.name)
            && let Some(Node::Const(Value::String(pattern))) = args.get(1)
        {
            self.patterns.add(pattern).map_err(|why| SyntaxError { at, why })?;
        }
        if function.name == "@in"
            && let Some(Node::Const(Value::List(list))) = args.get(1)
        {
            if list.is_empty() {
                return Ok(Node::Const(Value::Bool(false)));
            }
            if list.iter().all(is_primitive) {
                let list = list.to_vec();
                args.truncate(1);
                return Ok(match args.pop() {
                    Some(element) => Node::Member(Box::new(element), list),
                    None => Node::Call(function, args),
                });
            }
        }
        if matches!(function.name, "or" | "orValue") {
            return match <[Node; 2]>::try_from(args) {
                Ok(parts) => Ok(Node::OrElse {
                    parts: Box::new(parts),
                    is_value: function.name == "orValue",
                }),
                Err(args) => Ok(Node::Call(function, args)),
            };
        }
        Ok(Node::Call(function, args))
    }

    /// `operand[index]` and `operand[?index]`.
    fn index(&mut self, name: &str, args: &[Expr], at: usize) -> Found {
        let [operand, index] = args else { return error(at, "an index takes one value") };
        let (operand, operand_type) = self.expr(operand)?;
        let (index, index_type) = self.expr(index)?;
        let key = self.unifier.fresh();
        let value = self.unifier.fresh();
        let shapes = [
            (Type::list(value.clone()), super::types::INT, false),
            (Type::map(key.clone(), value.clone()), key.clone(), false),
            (Type::optional(Type::list(value.clone())), super::types::INT, true),
            (Type::optional(Type::map(key.clone(), value.clone())), key.clone(), true),
        ];
        let is_optional = name == "_[?_]";
        let mut result: Option<Type> = None;
        for (shape, by, is_in_optional) in shapes {
            // Inference for one overload must not affect the next, so each has its own variables.
            let variables = [self.unifier.fresh(), self.unifier.fresh()];
            let fresh = |of: &Type| {
                of.replace(&|number| {
                    let is_key = key == Type::Variable(number);
                    let [new_key, new_value] = &variables;
                    if is_key { new_key.clone() } else { new_value.clone() }
                })
            };
            let (shape, by) = (fresh(&shape), fresh(&by));
            if self.unifier.fit_all([(&operand_type, &shape), (&index_type, &by)]) {
                let [_, value] = &variables;
                let value = if is_optional || is_in_optional {
                    Type::optional(value.clone())
                } else {
                    value.clone()
                };
                let found = self.unifier.resolve(&value);
                result = Some(match result {
                    None => found,
                    Some(before) if before.is_dynamic() || before == found => before,
                    Some(_) => Type::Dyn,
                });
            }
        }
        let Some(result) = result else {
            let (operand, index) = (self.settled(&operand_type), self.settled(&index_type));
            return error(at, format!("type {operand} has no elements by {index}"));
        };
        let parts = Box::new([operand, index]);
        Ok((if is_optional { Node::OptIndex(parts) } else { Node::Index(parts) }, result))
    }
}

/// The context for constant folding.
fn tools(patterns: &Patterns) -> Tools<'_> {
    Tools { budget: crate::budget::Budget::default(), patterns }
}

fn is_primitive(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::String(_)
    )
}
