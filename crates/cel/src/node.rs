//! What an expression becomes when it is compiled: names resolved, types checked, constants computed.

use crate::function::Function;
use crate::value::Value;

/// A node.
#[derive(Debug)]
pub(crate) enum Node {
    /// A value that is known.
    Const(Value<'static>),
    /// The device.
    Device,
    /// A variable of a macro, by its place among those that hold.
    Local(usize),
    /// The field of a map or object; the name is a text value.
    Select(Box<Node>, Value<'static>),
    /// Whether the field is there.
    Has(Box<Node>, Value<'static>),
    /// The field as an optional.
    OptSelect(Box<Node>, Value<'static>),
    /// An element by index or key.
    Index(Box<[Node; 2]>),
    /// An element as an optional.
    OptIndex(Box<[Node; 2]>),
    /// A call.
    Call(&'static Function, Vec<Node>),
    /// `a.or(b)`, or `a.orValue(b)`.
    OrElse {
        /// The optional and what stands in for it.
        parts: Box<[Node; 2]>,
        /// Whether the result is a value and not an optional.
        is_value: bool,
    },
    /// Whether a value is in a list of constants.
    Member(Box<Node>, Vec<Value<'static>>),
    /// Whether all are true.
    And(Vec<Node>),
    /// Whether one is true.
    Or(Vec<Node>),
    /// Condition, then, else.
    Cond(Box<[Node; 3]>),
    /// A list: elements, and whether each is optional.
    List(Vec<(bool, Node)>),
    /// A map: whether each entry is optional, keys and values.
    Map(Vec<(bool, Node, Node)>),
    /// A loop.
    Fold(Box<Fold>),
    /// A value, and an expression in which it is the next variable.
    Bind(Box<[Node; 2]>),
    /// An optional, and an expression in which its value is the next variable; where it is flat the
    /// expression is an optional itself.
    OptMap {
        /// The optional and the expression.
        parts: Box<[Node; 2]>,
        /// Whether the expression is an optional.
        is_flat: bool,
    },
}

/// A loop. The accumulator is the next variable, one or two for the element follow.
#[derive(Debug)]
pub(crate) struct Fold {
    /// List or map.
    pub(crate) range: Node,
    /// Whether there are two variables for the element.
    pub(crate) has_second: bool,
    /// First value of the accumulator.
    pub(crate) init: Node,
    /// Whether to go on.
    pub(crate) condition: Node,
    /// What follows.
    pub(crate) step: Step,
    /// What the loop evaluates to.
    pub(crate) result: Node,
}

/// What a loop does with each element.
#[derive(Debug)]
pub(crate) enum Step {
    /// Computes the accumulator.
    Next(Node),
    /// Appends to the accumulator, a list that nothing else sees: without copying it.
    Append {
        /// Whether to.
        filter: Option<Node>,
        /// What.
        element: Node,
    },
}
