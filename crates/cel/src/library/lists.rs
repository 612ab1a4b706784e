//! Lists: Kubernetes' own library, the lists extension (version 3) and sets.

use std::cmp::Ordering;

use super::operators;
use crate::budget::COST_LIMIT;
use crate::fault::Fault;
use crate::function::{Row, Tools};
use crate::price::Price;
use crate::value::{Value, compare, equal, no_overload};

pub(super) const TABLE: &[Row] = &[
    (
        "isSorted",
        Price::Elements,
        is_sorted,
        &[
            ".(list<int>) bool",
            ".(list<uint>) bool",
            ".(list<double>) bool",
            ".(list<bool>) bool",
            ".(list<duration>) bool",
            ".(list<string>) bool",
            ".(list<bytes>) bool",
        ],
    ),
    (
        "sum",
        Price::Elements,
        sum,
        &[
            ".(list<int>) int",
            ".(list<uint>) uint",
            ".(list<double>) double",
            ".(list<duration>) duration",
        ],
    ),
    ("min", Price::Elements, |args, _| extreme(args, Ordering::Greater), EXTREME),
    ("max", Price::Elements, |args, _| extreme(args, Ordering::Less), EXTREME),
    ("slice", Price::NewList, slice, &[".(list<T>, int, int) list<T>"]),
    (
        "flatten",
        Price::Flatten,
        flatten,
        &[".(list<list<T>>) list<T>", ".(list<dyn>, int) list<dyn>"],
    ),
    ("lists.range", Price::NewList, range, &["(int) list<int>"]),
    ("reverse", Price::NewList, reverse, &[".(list<T>) list<T>"]),
    ("distinct", Price::Pairs(0), distinct, &[".(list<T>) list<T>"]),
    (
        "sort",
        Price::Pairs(0),
        sort,
        &[
            ".(list<int>) list<int>",
            ".(list<uint>) list<uint>",
            ".(list<double>) list<double>",
            ".(list<bool>) list<bool>",
            ".(list<duration>) list<duration>",
            ".(list<string>) list<string>",
            ".(list<bytes>) list<bytes>",
        ],
    ),
    (
        "@sort_by_keys",
        Price::Pairs(1),
        sort_by_keys,
        &[
            ".(list<T>, list<int>) list<T>",
            ".(list<T>, list<uint>) list<T>",
            ".(list<T>, list<double>) list<T>",
            ".(list<T>, list<bool>) list<T>",
            ".(list<T>, list<duration>) list<T>",
            ".(list<T>, list<string>) list<T>",
            ".(list<T>, list<bytes>) list<T>",
        ],
    ),
    ("includes", Price::One, includes, &[".(dyn, dyn) bool"]),
    ("first", Price::One, |args, _| end(args, <[_]>::first), END),
    ("last", Price::One, |args, _| end(args, <[_]>::last), END),
    ("sets.contains", Price::Product(1), sets_contains, SETS),
    ("sets.equivalent", Price::Product(2), sets_equivalent, SETS),
    ("sets.intersects", Price::Product(1), sets_intersects, SETS),
];

const EXTREME: &[&str] = &[
    ".(list<int>) int",
    ".(list<uint>) uint",
    ".(list<double>) double",
    ".(list<bool>) bool",
    ".(list<duration>) duration",
    ".(list<string>) string",
    ".(list<bytes>) bytes",
];
const END: &[&str] = &[".(list<T>) optional<T>"];
const SETS: &[&str] = &["(list<T>, list<T>) bool"];

fn is_sorted<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(list)] = args else { return Err(no_overload("isSorted", args)) };
    tools.budget.work(list.len())?;
    for pair in list.windows(2) {
        if let [a, b] = pair
            && compare(a, b)?.is_gt()
        {
            return Ok(Value::Bool(false));
        }
    }
    Ok(Value::Bool(true))
}

/// The sum of an empty list is the int 0, which equals 0 of every number type.
fn sum<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(list)] = args else { return Err(no_overload("sum", args)) };
    let mut elements = list.iter();
    let Some(first) = elements.next() else { return Ok(Value::Int(0)) };
    if !matches!(first, Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_)) {
        return Err(no_overload("sum", args));
    }
    let mut total = first.clone();
    for element in elements {
        total = operators::add(&[total, element.clone()], tools)?;
    }
    Ok(total)
}

/// The first element that compares as less (or greater) or equal to all others.
fn extreme<'a>(args: &[Value<'a>], worse: Ordering) -> Result<Value<'a>, Fault> {
    let [Value::List(list)] = args else { return Err(no_overload("min or max", args)) };
    let mut elements = list.iter();
    let mut best = elements.next().ok_or_else(|| Fault::error("min or max of an empty list"))?;
    // A single element needs no comparison, but its type must be ordered.
    compare(best, best)?;
    for element in elements {
        if compare(best, element)? == worse {
            best = element;
        }
    }
    Ok(best.clone())
}

/// Index of the first or last equal element, or -1.
pub(super) fn index_of<'a>(
    list: &[Value<'a>],
    wanted: &Value<'a>,
    is_last: bool,
    tools: &mut Tools<'_>,
) -> Result<Value<'a>, Fault> {
    let mut fits = |element: &Value<'a>| match equal(element, wanted, &mut tools.budget) {
        Ok(is_equal) => Ok(is_equal),
        Err(Fault::Error(_)) => Ok(false),
        Err(fault) => Err(fault),
    };
    let places: Box<dyn Iterator<Item = (usize, &Value<'a>)>> = if is_last {
        Box::new(list.iter().enumerate().rev())
    } else {
        Box::new(list.iter().enumerate())
    };
    for (at, element) in places {
        if fits(element)? {
            return Ok(Value::Int(i64::try_from(at).unwrap_or(i64::MAX)));
        }
    }
    Ok(Value::Int(-1))
}

fn slice<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(list), Value::Int(start), Value::Int(end)] = args else {
        return Err(no_overload("slice", args));
    };
    tools.budget.work(list.len())?;
    let range = match (usize::try_from(*start), usize::try_from(*end)) {
        (Ok(start), Ok(end)) => start..end,
        _ => return Err(Fault::error("slice() has a negative index")),
    };
    match list.get(range) {
        Some(part) => Ok(Value::list(part.to_vec())),
        None => Err(Fault::because(format!(
            "cannot slice({start}, {end}) a list of {} elements",
            list.len()
        ))),
    }
}

fn flatten<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let (list, depth) = match args {
        [Value::List(list)] => (list, 1),
        [Value::List(list), Value::Int(depth)] => (list, *depth),
        _ => return Err(no_overload("flatten", args)),
    };
    if depth < 0 {
        return Err(Fault::error("flatten() has a negative depth"));
    }
    let mut flat = Vec::new();
    flatten_into(list, depth, &mut flat, tools)?;
    Ok(Value::list(flat))
}

fn flatten_into<'a>(
    list: &[Value<'a>],
    depth: i64,
    flat: &mut Vec<Value<'a>>,
    tools: &mut Tools<'_>,
) -> Result<(), Fault> {
    tools.budget.work(list.len() + 1)?;
    for element in list {
        match element {
            Value::List(inner) if depth > 0 => flatten_into(inner, depth - 1, flat, tools)?,
            _ => flat.push(element.clone()),
        }
    }
    Ok(())
}

fn range<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::Int(end)] = args else { return Err(no_overload("lists.range", args)) };
    // The price depends on the elements but is charged after they are made, so limit them first.
    if u64::try_from(*end).is_ok_and(|end| end > COST_LIMIT) {
        return Err(Fault::TooCostly);
    }
    tools.budget.work(usize::try_from(*end).unwrap_or(0))?;
    Ok(Value::list((0..*end).map(Value::Int).collect()))
}

fn reverse<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(list)] = args else { return Err(no_overload("reverse", args)) };
    tools.budget.work(list.len())?;
    Ok(Value::list(list.iter().rev().cloned().collect()))
}

fn distinct<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(list)] = args else { return Err(no_overload("distinct", args)) };
    let mut unique: Vec<Value<'a>> = Vec::new();
    for element in list.iter() {
        if !operators::list_contains(&unique, element, tools)? {
            unique.push(element.clone());
        }
    }
    Ok(Value::list(unique))
}

fn sort<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [list] = args else { return Err(no_overload("sort", args)) };
    sort_by_keys(&[list.clone(), list.clone()], tools)
}

fn sort_by_keys<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(list), Value::List(keys)] = args else {
        return Err(no_overload("sort", args));
    };
    tools.budget.work(list.len().saturating_mul(16))?;
    let Some(first) = keys.first() else { return Ok(args.first().cloned().unwrap_or(Value::Null)) };
    compare(first, first)?;
    if list.len() != keys.len() || keys.iter().any(|key| key.type_name() != first.type_name()) {
        return Err(Fault::error("list elements to sort by must have the same type"));
    }
    let mut pairs: Vec<(&Value<'a>, &Value<'a>)> = keys.iter().zip(list.iter()).collect();
    // NaN is the only unordered value of an ordered type. It goes last, because a sort needs a
    // total order.
    let is_nan = |key: &Value<'a>| matches!(key, Value::Double(number) if number.is_nan());
    pairs.sort_by(|(a, _), (b, _)| compare(a, b).unwrap_or_else(|_| is_nan(a).cmp(&is_nan(b))));
    Ok(Value::list(pairs.into_iter().map(|(_, element)| element.clone()).collect()))
}

fn end<'a>(
    args: &[Value<'a>],
    of: for<'l> fn(&'l [Value<'a>]) -> Option<&'l Value<'a>>,
) -> Result<Value<'a>, Fault> {
    let [Value::List(list)] = args else { return Err(no_overload("first or last", args)) };
    Ok(of(list).map_or(Value::Optional(None), |element| Value::some(element.clone())))
}

/// Whether a value equals another or contains it as an element. Values that cannot be compared
/// differ.
fn includes<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    /// Limit of the values that the attributes of a device may have together.
    const MAX_SEARCHED: usize = 48;
    let [target, wanted] = args else { return Err(no_overload("includes", args)) };
    let Value::List(list) = target else {
        let one = std::slice::from_ref(target);
        return operators::list_contains(one, wanted, tools).map(Value::Bool);
    };
    let first = list.get(..MAX_SEARCHED).unwrap_or(list);
    let is_there = operators::list_contains(first, wanted, tools)?;
    if !is_there && list.len() > MAX_SEARCHED {
        return Err(Fault::error("includes() looks at 48 values at most"));
    }
    Ok(Value::Bool(is_there))
}

fn is_subset<'a>(
    part: &[Value<'a>],
    whole: &[Value<'a>],
    tools: &mut Tools<'_>,
) -> Result<bool, Fault> {
    for element in part {
        if !operators::list_contains(whole, element, tools)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn sets_contains<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(whole), Value::List(part)] = args else {
        return Err(no_overload("sets.contains", args));
    };
    Ok(Value::Bool(is_subset(part, whole, tools)?))
}

fn sets_equivalent<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(a), Value::List(b)] = args else {
        return Err(no_overload("sets.equivalent", args));
    };
    Ok(Value::Bool(is_subset(b, a, tools)? && is_subset(a, b, tools)?))
}

fn sets_intersects<'a>(args: &[Value<'a>], tools: &mut Tools<'_>) -> Result<Value<'a>, Fault> {
    let [Value::List(a), Value::List(b)] = args else {
        return Err(no_overload("sets.intersects", args));
    };
    for element in a.iter() {
        if operators::list_contains(b, element, tools)? {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}
