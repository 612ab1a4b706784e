//! Compiles the syntax tree. It resolves names and functions, checks types by the rules of cel-go's
//! checker and the validators that Kubernetes adds, and folds constants.

mod calls;
mod macros;

use crate::ast::{Expr, Kind, Literal};
use crate::lexer::SyntaxError;
use crate::library;
use crate::node::Node;
use crate::patterns::Patterns;
use crate::types::{self, Type, Unifier};
use crate::value::{Map, Value};

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Checked {
    /// The expression.
    pub(crate) node: Node,
    /// Its compiled patterns.
    pub(crate) patterns: Patterns,
}

/// Compiles an expression whose result is a bool, or an attribute, which may be one.
pub(crate) fn check(expr: &Expr) -> Result<Checked, SyntaxError> {
    let mut checker = Checker::default();
    let (node, found) = checker.expr(expr)?;
    let found = checker.settled(&found);
    if found != types::BOOL && found != Type::Any {
        let why = format!("the result must be a bool, not of type {found}");
        return Err(SyntaxError { at: 0, why });
    }
    checker.check_literals()?;
    Ok(Checked { node, patterns: checker.patterns })
}

/// State of the checker.
#[derive(Default)]
struct Checker {
    unifier: Unifier,
    /// Macro variables in scope, outermost first.
    locals: Vec<(String, Type)>,
    /// Types of the elements of list and map literals, which must be equal after inference.
    literals: Vec<(usize, Vec<Type>)>,
    /// Nesting of `format` calls, whose lists may be mixed.
    formats: usize,
    /// Element types of the last list literal.
    elements: Vec<Type>,
    /// Arguments of literal templates: offset, verb and type.
    formatted: Vec<(usize, char, Type)>,
    patterns: Patterns,
}

type Found = Result<(Node, Type), SyntaxError>;

fn error<T>(at: usize, why: impl Into<String>) -> Result<T, SyntaxError> {
    Err(SyntaxError { at, why: why.into() })
}

/// Text as a value.
fn text(text: &str) -> Value<'static> {
    Value::text(text)
}

impl Checker {
    /// A type after inference; what is still open is dynamic.
    fn settled(&self, of: &Type) -> Type {
        self.unifier.resolve(of).replace(&|_| Type::Dyn)
    }

    fn expr(&mut self, expr: &Expr) -> Found {
        match &expr.kind {
            Kind::Literal(literal) => Ok(constant(literal)),
            Kind::Ident(name) => self.ident(name, expr.at),
            Kind::Select(operand, field) => {
                if let Some(name) = expr.qualified_name().and_then(|name| self.type_name(&name)) {
                    return Ok((Node::Const(Value::Type(name)), types::TYPE));
                }
                let (operand, found) = self.select(operand, field, false, expr.at)?;
                Ok((Node::Select(Box::new(operand), text(field)), found))
            }
            Kind::Has(operand, field) => {
                let (operand, _) = self.select(operand, field, false, expr.at)?;
                Ok((Node::Has(Box::new(operand), text(field)), types::BOOL))
            }
            Kind::OptSelect(operand, field) => {
                let (operand, found) = self.select(operand, field, true, expr.at)?;
                Ok((Node::OptSelect(Box::new(operand), text(field)), found))
            }
            Kind::Call { name, target, args } => self.call(name, target.as_deref(), args, expr.at),
            Kind::And(terms) => Ok((Node::And(self.terms(terms)?), types::BOOL)),
            Kind::Or(terms) => Ok((Node::Or(self.terms(terms)?), types::BOOL)),
            Kind::Cond(parts) => self.conditional(parts, expr.at),
            Kind::List(elements) => self.list(elements, expr.at),
            Kind::Map(entries) => self.map(entries, expr.at),
            Kind::Fold(fold) => self.fold(fold),
            Kind::Bind(bind) => self.bind(bind),
            Kind::OptMap { bind, is_flat } => self.opt_map(bind, *is_flat),
        }
    }

    fn local(&self, name: &str) -> Option<usize> {
        self.locals.iter().rposition(|(local, _)| local == name)
    }

    /// The type that a name denotes, unless a variable shadows it.
    fn type_name(&self, name: &str) -> Option<&'static str> {
        let root = name.split('.').next().unwrap_or_default();
        if self.local(root).is_some() {
            return None;
        }
        types::NAMEABLE.into_iter().find(|known| *known == name)
    }

    fn ident(&self, name: &str, at: usize) -> Found {
        if let Some(place) = self.local(name) {
            let found = self.locals.get(place).map_or(Type::Dyn, |(_, found)| found.clone());
            return Ok((Node::Local(place), found));
        }
        if name == "device" {
            return Ok((Node::Device, types::DEVICE));
        }
        match self.type_name(name) {
            Some(name) => Ok((Node::Const(Value::Type(name)), types::TYPE)),
            None => {
                error(at, format!("undeclared reference to {name:?}: the only variable is device"))
            }
        }
    }

    /// The operand of a selection and the type of the field.
    fn select(&mut self, operand: &Expr, field: &str, is_optional: bool, at: usize) -> Found {
        let (node, found) = self.expr(operand)?;
        let found = self.unifier.resolve(&found);
        let (inner, was_optional) = match &found {
            Type::Optional(inner) => ((**inner).clone(), true),
            _ => (found, false),
        };
        let result = match &inner {
            Type::Map(_, value) => (**value).clone(),
            Type::Dyn | Type::Any => Type::Dyn,
            Type::Variable(_) => {
                self.unifier.fit(&Type::Dyn, &inner);
                Type::Dyn
            }
            device if *device == types::DEVICE => device_field(field, at)?,
            other => return error(at, format!("type {other} has no fields, so no {field:?}")),
        };
        let is_optional = is_optional || was_optional;
        Ok((node, if is_optional { Type::optional(result) } else { result }))
    }

    fn terms(&mut self, terms: &[Expr]) -> Result<Vec<Node>, SyntaxError> {
        let mut nodes = Vec::with_capacity(terms.len());
        for term in terms {
            nodes.push(self.bool(term)?);
        }
        Ok(nodes)
    }

    /// An expression that must be a bool.
    fn bool(&mut self, expr: &Expr) -> Result<Node, SyntaxError> {
        let (node, found) = self.expr(expr)?;
        if self.unifier.fit(&found, &types::BOOL) {
            return Ok(node);
        }
        error(expr.at, format!("a bool was expected, not {}", self.settled(&found)))
    }

    fn conditional(&mut self, [condition, yes, no]: &[Expr; 3], at: usize) -> Found {
        let condition = self.bool(condition)?;
        let (yes, yes_type) = self.expr(yes)?;
        let (no, no_type) = self.expr(no)?;
        let result = self.unifier.fresh();
        if !self.unifier.fit_all([(&yes_type, &result), (&no_type, &result)]) {
            let (yes, no) = (self.settled(&yes_type), self.settled(&no_type));
            return error(at, format!("the branches of '?:' differ in type: {yes} and {no}"));
        }
        let result = self.unifier.resolve(&result);
        Ok((Node::Cond(Box::new([condition, yes, no])), result))
    }

    /// The type of a literal's element; for an optional the type of its value.
    fn element(&mut self, expr: &Expr, is_optional: bool) -> Found {
        let (node, found) = self.expr(expr)?;
        if !is_optional {
            return Ok((node, found));
        }
        match self.unifier.resolve(&found) {
            Type::Optional(inner) => Ok((node, (*inner).clone())),
            found if found.is_dynamic() => Ok((node, found)),
            found => error(expr.at, format!("an optional was expected after '?', not {found}")),
        }
    }

    /// The common type of elements.
    fn join(&mut self, joined: Option<Type>, next: &Type) -> Type {
        match joined {
            None => next.clone(),
            Some(joined) if self.unifier.fit(&joined, next) => Unifier::general(&joined, next),
            Some(_) => Type::Dyn,
        }
    }

    fn list(&mut self, elements: &[(bool, Expr)], at: usize) -> Found {
        let mut nodes = Vec::with_capacity(elements.len());
        let mut types = Vec::with_capacity(elements.len());
        let mut joined = None;
        for (is_optional, element) in elements {
            let (node, found) = self.element(element, *is_optional)?;
            joined = Some(self.join(joined, &found));
            types.push(found);
            nodes.push((*is_optional, node));
        }
        self.elements.clone_from(&types);
        self.note(at, types);
        let found = Type::list(joined.unwrap_or_else(|| self.unifier.fresh()));
        let constants: Option<Vec<Value<'static>>> = nodes
            .iter()
            .map(|(is_optional, node)| match node {
                Node::Const(value) if !is_optional => Some(value.clone()),
                _ => None,
            })
            .collect();
        Ok((constants.map_or(Node::List(nodes), |list| Node::Const(Value::list(list))), found))
    }

    fn map(&mut self, entries: &[crate::ast::Entry], at: usize) -> Found {
        let mut nodes = Vec::with_capacity(entries.len());
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        let (mut key_joined, mut value_joined) = (None, None);
        for entry in entries {
            let (key, key_type) = self.expr(&entry.key)?;
            key_joined = Some(self.join(key_joined, &key_type));
            let (value, value_type) = self.element(&entry.value, entry.is_optional)?;
            value_joined = Some(self.join(value_joined, &value_type));
            keys.push(key_type);
            values.push(value_type);
            nodes.push((entry.is_optional, key, value));
        }
        self.note(at, keys);
        self.note(at, values);
        let key = key_joined.unwrap_or_else(|| self.unifier.fresh());
        let value = value_joined.unwrap_or_else(|| self.unifier.fresh());
        let mut map = Map::default();
        let is_constant = nodes.iter().all(|entry| match entry {
            (false, Node::Const(key), Node::Const(value)) => map.insert(key.clone(), value.clone()),
            _ => false,
        });
        let node = if is_constant { Node::Const(Value::Map(map.into())) } else { Node::Map(nodes) };
        Ok((node, Type::map(key, value)))
    }

    /// Records types that must be equal after inference.
    fn note(&mut self, at: usize, types: Vec<Type>) {
        if self.formats == 0 && types.len() > 1 {
            self.literals.push((at, types));
        }
    }

    /// Rejects lists and maps of mixed types.
    fn check_literals(&self) -> Result<(), SyntaxError> {
        for (at, types) in &self.literals {
            let mut types = types.iter().map(|found| self.settled(found));
            let Some(first) = types.next() else { continue };
            if let Some(other) = types.find(|other| *other != first) {
                return error(*at, format!("mixed types side by side: {first} and {other}"));
            }
        }
        for (at, verb, found) in &self.formatted {
            let found = self.settled(found);
            if !library::takes(*verb, &found) {
                return error(*at, format!("format() cannot print {found} by %{verb}"));
            }
        }
        Ok(())
    }
}

/// The type of a device's field.
fn device_field(field: &str, at: usize) -> Result<Type, SyntaxError> {
    let by_domain = |value| Type::map(types::STRING, Type::map(types::STRING, value));
    match field {
        "driver" => Ok(types::STRING),
        "allowMultipleAllocations" => Ok(types::BOOL),
        "attributes" => Ok(by_domain(Type::Any)),
        "capacity" => Ok(by_domain(Type::Plain("kubernetes.Quantity"))),
        _ => error(
            at,
            format!(
                "undefined field {field:?}: a device has driver, attributes, capacity and \
                 allowMultipleAllocations"
            ),
        ),
    }
}

/// A literal as a node.
fn constant(literal: &Literal) -> (Node, Type) {
    let (value, found) = match literal {
        Literal::Null => (Value::Null, types::NULL),
        Literal::Bool(value) => (Value::Bool(*value), types::BOOL),
        Literal::Int(number) => (Value::Int(*number), types::INT),
        Literal::Uint(number) => (Value::Uint(*number), types::UINT),
        Literal::Double(number) => (Value::Double(*number), types::DOUBLE),
        Literal::String(literal) => (text(literal), types::STRING),
        Literal::Bytes(bytes) => (Value::Bytes(bytes.as_slice().into()), types::BYTES),
    };
    (Node::Const(value), found)
}
