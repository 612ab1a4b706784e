//! The syntax tree of an expression, with macros expanded and without types.

/// A node of the tree.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expr {
    /// Its kind and parts.
    pub(crate) kind: Kind,
    /// Start in the text, in bytes.
    pub(crate) at: usize,
    /// Length of the longest path to a leaf, including both ends.
    pub(crate) depth: usize,
}

/// The kinds of nodes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// A literal.
    Literal(Literal),
    /// A name.
    Ident(String),
    /// `operand.field`.
    Select(Box<Expr>, String),
    /// `has(operand.field)`.
    Has(Box<Expr>, String),
    /// `operand.?field`.
    OptSelect(Box<Expr>, String),
    /// `name(args)` or `target.name(args)`; operators by the names that CEL gives them (`_+_`).
    Call {
        /// Name of the function.
        name: String,
        /// The target of a member call.
        target: Option<Box<Expr>>,
        /// Arguments.
        args: Vec<Expr>,
    },
    /// `a && b && …`.
    And(Vec<Expr>),
    /// `a || b || …`.
    Or(Vec<Expr>),
    /// `condition ? yes : no`.
    Cond(Box<[Expr; 3]>),
    /// `[a, ?b]`: elements, and whether each is optional.
    List(Vec<(bool, Expr)>),
    /// `{k: v, ?k: v}`.
    Map(Vec<Entry>),
    /// A loop, the expansion of macros like `all`.
    Fold(Box<Fold>),
    /// `cel.bind(name, value, body)`.
    Bind(Box<Bind>),
    /// `target.optMap(name, body)` or, flat, `target.optFlatMap(name, body)`.
    OptMap {
        /// The name and the optional.
        bind: Box<Bind>,
        /// Whether the body is itself an optional.
        is_flat: bool,
    },
}

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// `-1`, `0xff`.
    Int(i64),
    /// `1u`.
    Uint(u64),
    /// `1.5`.
    Double(f64),
    /// `"text"`.
    String(String),
    /// `b"bytes"`.
    Bytes(Vec<u8>),
}

/// An entry of a map literal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    /// Whether the value is an optional; the entry is omitted if it is empty.
    pub(crate) is_optional: bool,
    /// Key.
    pub(crate) key: Expr,
    /// Value.
    pub(crate) value: Expr,
}

/// A loop over a range with an accumulator, which its parts call [`ACCUMULATOR`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fold {
    /// List or map.
    pub(crate) range: Expr,
    /// Name of the element or key. With a second name: of the index or key.
    pub(crate) name: String,
    /// Name of the element or value, in macros with two variables.
    pub(crate) second: Option<String>,
    /// Initial value of the accumulator.
    pub(crate) init: Expr,
    /// Whether the loop continues.
    pub(crate) condition: Expr,
    /// Next value of the accumulator.
    pub(crate) step: Expr,
    /// Value of the loop.
    pub(crate) result: Expr,
}

/// A name for a value, and its scope.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bind {
    /// Name.
    pub(crate) name: String,
    /// Value.
    pub(crate) value: Expr,
    /// The scope of the name.
    pub(crate) body: Expr,
}

/// Name of a loop's accumulator. No identifier can have this name.
pub(crate) const ACCUMULATOR: &str = "@result";

impl Expr {
    /// A node at an offset of the text.
    pub(crate) fn new(kind: Kind, at: usize) -> Self {
        let below = match &kind {
            Kind::Literal(_) | Kind::Ident(_) => 0,
            Kind::Select(operand, _) | Kind::Has(operand, _) | Kind::OptSelect(operand, _) => {
                operand.depth
            }
            Kind::Call { target, args, .. } => {
                deepest(args.iter().chain(target.iter().map(AsRef::as_ref)))
            }
            Kind::And(terms) | Kind::Or(terms) => deepest(terms),
            Kind::Cond(parts) => deepest(parts.iter()),
            Kind::List(elements) => deepest(elements.iter().map(|(_, element)| element)),
            Kind::Map(entries) => {
                deepest(entries.iter().flat_map(|entry| [&entry.key, &entry.value]))
            }
            Kind::Fold(fold) => {
                let Fold { range, init, condition, step, result, .. } = &**fold;
                deepest([range, init, condition, step, result])
            }
            Kind::Bind(bind) | Kind::OptMap { bind, .. } => deepest([&bind.value, &bind.body]),
        };
        Self { kind, at, depth: below + 1 }
    }

    /// A call of an operator or a global function.
    pub(crate) fn call(name: &str, args: Vec<Self>, at: usize) -> Self {
        Self::new(Kind::Call { name: name.to_owned(), target: None, args }, at)
    }

    /// A name.
    pub(crate) fn ident(name: &str, at: usize) -> Self {
        Self::new(Kind::Ident(name.to_owned()), at)
    }

    /// A literal.
    pub(crate) fn literal(literal: Literal, at: usize) -> Self {
        Self::new(Kind::Literal(literal), at)
    }

    /// The text `a.b.c` of a node that is only a path; it may be the prefix of a function's name.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.clone()),
            Kind::Select(operand, field) => Some(format!("{}.{field}", operand.qualified_name()?)),
            _ => None,
        }
    }
}

/// The greatest depth among nodes; 0 if there are none.
fn deepest<'a>(nodes: impl IntoIterator<Item = &'a Expr>) -> usize {
    nodes.into_iter().map(|node| node.depth).max().unwrap_or(0)
}
