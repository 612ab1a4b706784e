//! Types and assignability, by the rules of cel-go's checker.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// Known only at run time.
    Dyn,
    /// The type of attributes: like [`Type::Dyn`], but it cannot be iterated.
    Any,
    /// A type without parameters, by name.
    Plain(&'static str),
    /// A list.
    List(Arc<Type>),
    /// A map.
    Map(Arc<Type>, Arc<Type>),
    /// An optional.
    Optional(Arc<Type>),
    /// A type variable: in signatures numbered from 0, in a checker by its bindings.
    Variable(usize),
}

pub(crate) const BOOL: Type = Type::Plain("bool");
pub(crate) const INT: Type = Type::Plain("int");
pub(crate) const UINT: Type = Type::Plain("uint");
pub(crate) const DOUBLE: Type = Type::Plain("double");
pub(crate) const STRING: Type = Type::Plain("string");
pub(crate) const BYTES: Type = Type::Plain("bytes");
pub(crate) const NULL: Type = Type::Plain("null_type");
pub(crate) const TYPE: Type = Type::Plain("type");
pub(crate) const DEVICE: Type = Type::Plain("kubernetes.DRADevice");

/// Types without parameters: names in signatures and in CEL.
const PLAIN: [(&str, &str); 15] = [
    ("bool", "bool"),
    ("int", "int"),
    ("uint", "uint"),
    ("double", "double"),
    ("string", "string"),
    ("bytes", "bytes"),
    ("null", "null_type"),
    ("type", "type"),
    ("duration", "google.protobuf.Duration"),
    ("quantity", "kubernetes.Quantity"),
    ("semver", "kubernetes.Semver"),
    ("ip", "net.IP"),
    ("cidr", "net.CIDR"),
    ("format", "kubernetes.NamedFormat"),
    ("device", "kubernetes.DRADevice"),
];

/// Types that expressions may use as values.
pub(crate) const NAMEABLE: [&str; 14] = [
    "bool",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "null_type",
    "type",
    "list",
    "map",
    "dyn",
    "optional_type",
    "net.IP",
    "net.CIDR",
];

impl Type {
    /// A list of a type.
    pub(crate) fn list(element: Self) -> Self {
        Self::List(Arc::new(element))
    }

    /// A map.
    pub(crate) fn map(key: Self, value: Self) -> Self {
        Self::Map(Arc::new(key), Arc::new(value))
    }

    /// An optional.
    pub(crate) fn optional(value: Self) -> Self {
        Self::Optional(Arc::new(value))
    }

    /// Whether it is known only at run time.
    pub(crate) fn is_dynamic(&self) -> bool {
        matches!(self, Self::Dyn | Self::Any)
    }

    /// Whether null is assignable to it.
    fn is_nullable(&self) -> bool {
        match self {
            Self::Optional(_) | Self::Any => true,
            Self::Plain(name) => name.contains('.') || *name == "null_type",
            _ => false,
        }
    }

    /// Whether it is equal to or less specific than another type, as [`Type::Dyn`] is.
    fn says_no_more_than(&self, other: &Self) -> bool {
        if self.is_dynamic() || matches!(self, Self::Variable(_)) {
            return true;
        }
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => {
                a.says_no_more_than(b)
            }
            (Self::Map(key, value), Self::Map(other_key, other_value)) => {
                key.says_no_more_than(other_key) && value.says_no_more_than(other_value)
            }
            _ => self == other,
        }
    }

    /// The type with its variables replaced.
    pub(crate) fn replace(&self, with: &impl Fn(usize) -> Self) -> Self {
        match self {
            Self::Variable(number) => with(*number),
            Self::List(element) => Self::list(element.replace(with)),
            Self::Optional(value) => Self::optional(value.replace(with)),
            Self::Map(key, value) => Self::map(key.replace(with), value.replace(with)),
            _ => self.clone(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn => f.write_str("dyn"),
            Self::Any => f.write_str("any"),
            Self::Plain(name) => f.write_str(name),
            Self::List(element) => write!(f, "list({element})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional({value})"),
            Self::Variable(number) => write!(f, "unknown{number}"),
        }
    }
}

/// Parses a type of a signature: `list<T>`, `map<K, V>`, `quantity`; `None` if it is malformed.
pub(crate) fn parse(text: &str) -> Option<Type> {
    let text = text.trim();
    if let Some(inner) = text.strip_suffix('>') {
        let (name, inner) = inner.split_once('<')?;
        return match name {
            "list" => Some(Type::list(parse(inner)?)),
            "optional" => Some(Type::optional(parse(inner)?)),
            "map" => {
                let (key, value) = inner.split_once(',')?;
                Some(Type::map(parse(key)?, parse(value)?))
            }
            _ => None,
        };
    }
    match text {
        "dyn" => Some(Type::Dyn),
        "A" | "T" | "K" => Some(Type::Variable(0)),
        "B" | "V" => Some(Type::Variable(1)),
        _ => PLAIN.iter().find(|(name, _)| *name == text).map(|(_, name)| Type::Plain(name)),
    }
}

/// Limit of a checker's steps over types. Types can double with each expression that uses a name
/// twice. Beyond the limit nothing is assignable.
const MAX_STEPS: usize = 500_000;

/// Limit of a type's nodes. Deeper parts become [`Type::Dyn`], which is checked at run time.
const MAX_NODES: usize = 500;

/// Inference of type variables.
#[derive(Default)]
pub(crate) struct Unifier {
    bound: Vec<Option<Type>>,
    /// Previous bindings, for backtracking.
    trail: Vec<(usize, Option<Type>)>,
    steps: Cell<usize>,
}

impl Unifier {
    /// A new variable.
    pub(crate) fn fresh(&mut self) -> Type {
        self.bound.push(None);
        Type::Variable(self.bound.len() - 1)
    }

    fn binding(&self, variable: usize) -> Option<&Type> {
        self.bound.get(variable)?.as_ref()
    }

    fn bind(&mut self, variable: usize, to: Type) {
        if let Some(slot) = self.bound.get_mut(variable) {
            self.trail.push((variable, slot.replace(to)));
        }
    }

    /// Counts a step; false at the limit.
    fn step(&self) -> bool {
        self.steps.set(self.steps.get() + 1);
        self.steps.get() <= MAX_STEPS
    }

    /// The type with its bindings substituted.
    pub(crate) fn resolve(&self, of: &Type) -> Type {
        self.resolve_within(of, &mut { MAX_NODES })
    }

    fn resolve_within(&self, of: &Type, left: &mut usize) -> Type {
        if *left == 0 || !self.step() {
            return Type::Dyn;
        }
        *left -= 1;
        match of {
            Type::Variable(number) => match self.binding(*number) {
                Some(bound) => self.resolve_within(bound, left),
                None => of.clone(),
            },
            Type::List(element) => Type::list(self.resolve_within(element, left)),
            Type::Optional(value) => Type::optional(self.resolve_within(value, left)),
            Type::Map(key, value) => {
                Type::map(self.resolve_within(key, left), self.resolve_within(value, left))
            }
            _ => of.clone(),
        }
    }

    /// Whether all pairs of types are assignable, in order. If not, all bindings are undone.
    pub(crate) fn fit_all<'t>(
        &mut self,
        pairs: impl IntoIterator<Item = (&'t Type, &'t Type)>,
    ) -> bool {
        let mark = self.trail.len();
        let fits = pairs.into_iter().all(|(a, b)| self.unify(a, b));
        if !fits {
            for (variable, before) in self.trail.split_off(mark).into_iter().rev() {
                if let Some(slot) = self.bound.get_mut(variable) {
                    *slot = before;
                }
            }
        }
        fits
    }

    /// Whether one type is assignable to another.
    pub(crate) fn fit(&mut self, a: &Type, b: &Type) -> bool {
        self.fit_all([(a, b)])
    }

    /// The more general of two assignable types.
    pub(crate) fn general(a: &Type, b: &Type) -> Type {
        if a.says_no_more_than(b) { a.clone() } else { b.clone() }
    }

    fn unify(&mut self, a: &Type, b: &Type) -> bool {
        if !self.step() {
            return false;
        }
        if let Type::Variable(number) = b {
            match self.substitute(a, *number) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Variable(number) = a {
            return self.substitute(b, *number).0;
        }
        if a.is_dynamic() || b.is_dynamic() {
            return true;
        }
        match (a, b) {
            (Type::Plain("null_type"), other) | (other, Type::Plain("null_type")) => {
                other.is_nullable()
            }
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                self.unify(a, b)
            }
            (Type::Map(key, value), Type::Map(other_key, other_value)) => {
                self.unify(key, other_key) && self.unify(value, other_value)
            }
            _ => a == b,
        }
    }

    /// Whether a type can be bound to a variable, and whether the variable was already bound.
    fn substitute(&mut self, of: &Type, variable: usize) -> (bool, bool) {
        if *of == Type::Variable(variable) {
            return (true, true);
        }
        if let Some(bound) = self.binding(variable).cloned() {
            if *of == bound {
                return (true, true);
            }
            if self.unify(of, &bound) {
                let general = Self::general(of, &bound);
                if !self.mentions(&general, variable) {
                    self.bind(variable, general);
                }
                return (true, true);
            }
            return (false, true);
        }
        if self.mentions(of, variable) {
            return (false, false);
        }
        self.bind(variable, of.clone());
        (true, false)
    }

    /// Whether a variable occurs in a type, which excludes binding it to that type.
    fn mentions(&self, within: &Type, variable: usize) -> bool {
        if !self.step() {
            return true;
        }
        match within {
            Type::Variable(number) if *number == variable => true,
            Type::Variable(number) => {
                self.binding(*number).is_some_and(|bound| self.mentions(bound, variable))
            }
            Type::List(inner) | Type::Optional(inner) => self.mentions(inner, variable),
            Type::Map(key, value) => self.mentions(key, variable) || self.mentions(value, variable),
            _ => false,
        }
    }
}
