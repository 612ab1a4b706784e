//! Compiled expressions: names resolved, types checked, constants folded.

use crate::function::Function;
use crate::value::Value;

/// A node.
#[derive(Debug)]
pub(crate) enum Node {
    /// A constant.
    Const(Value<'static>),
    /// The device.
    Device,
    /// A macro variable, by its index among those in scope.
    Local(usize),
    /// The field of a map or object; the name is a text value.
    Select(Box<Node>, Value<'static>),
    /// Whether a field is present.
    Has(Box<Node>, Value<'static>),
    /// Optional access to a field.
    OptSelect(Box<Node>, Value<'static>),
    /// An element by index or key.
    Index(Box<[Node; 2]>),
    /// Optional access to an element.
    OptIndex(Box<[Node; 2]>),
    /// A call.
    Call(&'static Function, Vec<Node>),
    /// `a.or(b)`, or `a.orValue(b)`.
    OrElse {
        /// The optional and the alternative.
        parts: Box<[Node; 2]>,
        /// Whether the result is a value, not an optional.
        is_value: bool,
    },
    /// Whether a list of constants contains a value.
    Member(Box<Node>, Vec<Value<'static>>),
    /// Whether all terms are true.
    And(Vec<Node>),
    /// Whether any term is true.
    Or(Vec<Node>),
    /// Condition, then, else.
    Cond(Box<[Node; 3]>),
    /// A list: elements, and whether each is optional.
    List(Vec<(bool, Node)>),
    /// A map: whether each entry is optional, keys and values.
    Map(Vec<(bool, Node, Node)>),
    /// A loop.
    Fold(Box<Fold>),
    /// A value, and an expression with it as a new variable.
    Bind(Box<[Node; 2]>),
    /// An optional, and an expression with its value as a new variable.
    OptMap {
        /// The optional and the expression.
        parts: Box<[Node; 2]>,
        /// Whether the expression is itself an optional.
        is_flat: bool,
    },
}

/// A loop. It adds the accumulator as a variable, then one or two for the element.
#[derive(Debug)]
pub(crate) struct Fold {
    /// List or map.
    pub(crate) range: Node,
    /// Whether the element has two variables.
    pub(crate) has_second: bool,
    /// Initial value of the accumulator.
    pub(crate) init: Node,
    /// Whether the loop continues.
    pub(crate) condition: Node,
    /// The step for each element.
    pub(crate) step: Step,
    /// Value of the loop.
    pub(crate) result: Node,
}

/// The step of a loop.
#[derive(Debug)]
pub(crate) enum Step {
    /// Computes the accumulator.
    Next(Node),
    /// Appends to the accumulator, a list that is not shared, without copying it.
    Append {
        /// Condition for appending.
        filter: Option<Node>,
        /// The new element.
        element: Node,
    },
}
