//! Expressions that would exhaust memory, time or stack are stopped.

use super::{CelError, Selector, matches};
use crate::library::FUNCTIONS;

fn is_too_costly(expression: &str) -> bool {
    matches!(matches(expression), Err(CelError::TooCostly { .. }))
}

/// `cel.bind` of the names `a0`, `a1`, …, each made from the one before.
fn chain(first: &str, next: impl Fn(&str) -> String, times: usize, last: &str) -> String {
    let mut expression = format!("cel.bind(a0, {first}, ");
    for number in 1..times {
        let value = next(&format!("a{}", number - 1));
        expression += &["cel.bind(a", &number.to_string(), ", ", &value, ", "].concat();
    }
    expression.push_str(&last.replace("LAST", &format!("a{}", times - 1)));
    expression.push_str(&")".repeat(times));
    expression
}

#[test]
fn lists_that_double_end() {
    assert!(is_too_costly(&chain("[1]", |a| format!("{a} + {a}"), 60, "LAST.size() == 1")));
}

#[test]
fn text_that_doubles_ends() {
    assert!(is_too_costly(&chain("'a'", |a| format!("{a} + {a}"), 60, "LAST == 'a'")));
    let replaced = |a: &str| format!("{a}.replace('', {a})");
    assert!(is_too_costly(&chain("'aaaaaaaaaa'", replaced, 20, "LAST == 'a'")));
}

#[test]
fn lists_of_the_same_list_end() {
    let ten = |a: &str| format!("[{a}, {a}, {a}, {a}, {a}, {a}, {a}, {a}, {a}, {a}]");
    for last in ["LAST == LAST", "LAST.flatten(50).size() == 1", "'%s'.format([LAST]) == ''"] {
        assert!(is_too_costly(&chain("[1]", ten, 40, last)), "{last}");
    }
    assert!(matches(&chain("[]", ten, 40, "dyn(LAST).min() == dyn(1)")).is_err());
}

#[test]
fn types_that_double_are_checked_soon() {
    // Each name is a map of maps, whose type has twice the parts of the one before.
    let twice = |a: &str| format!("{{'k': [{a}, {a}], 'l': [{a}]}}");
    assert!(matches(&chain("{}", twice, 60, "LAST == LAST")).is_err());
    let keys = |a: &str| format!("[{a}].map(x, {{x: x}})[0]");
    assert!(matches(&chain("[]", keys, 40, "LAST == LAST")).is_err());
}

#[test]
fn loops_within_loops_end_even_where_a_turn_costs_nothing() {
    assert!(is_too_costly(
        "cel.bind(r, lists.range(90000), r.exists_one(a, r.exists_one(b, r.exists_one(c, false))))"
    ));
    assert!(is_too_costly("lists.range(2000).all(a, lists.range(2000).all(b, true))"));
    assert!(is_too_costly("lists.range(9223372036854775807).size() == 1"));
}

#[test]
fn a_range_that_is_too_dear_is_not_made() {
    assert_eq!(matches("lists.range(900000).size() == 900000"), Ok(true));
    assert!(is_too_costly("lists.range(9999999).size() == 9999999"));
}

#[test]
fn a_list_with_what_is_no_number_is_sorted() {
    // Long enough for a sort that detects an inconsistent order.
    let list = "[2.0, 2.0, 2.0, 0.0/0.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, \
                0.0, 0.0, 0.0, 0.0, 0.0]";
    assert_eq!(matches(&format!("{list}.sort().size() == 21")), Ok(true));
    assert_eq!(matches(&format!("{list}.sort().slice(12, 20).sum() == 10.0")), Ok(true));
    assert_eq!(matches(&format!("{list}.sortBy(n, n).size() == 21")), Ok(true));
}

#[test]
fn patterns_that_are_made_while_running_are_bounded() {
    assert!(is_too_costly("lists.range(5000).all(n, string(n).matches('a?' + string(n) + '|.*'))"));
}

#[test]
fn nothing_absorbs_excess() {
    assert!(is_too_costly("lists.range(9223372036854775807).size() == 1 || true"));
    assert!(is_too_costly("true && lists.range(9223372036854775807).size() == 1"));
    assert!(is_too_costly("[1].exists(x, lists.range(2000000).size() == x) || true"));
}

#[test]
fn brackets_beyond_the_limit_are_refused_and_not_followed() {
    let nested = |depth: usize| format!("{}true{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(matches(&nested(60)), Ok(true));
    for depth in [65, 500, 5000] {
        assert!(Selector::compile(&nested(depth)).is_err());
        assert!(Selector::compile(&"[".repeat(depth)).is_err());
        assert!(Selector::compile(&"{1:".repeat(depth)).is_err());
        assert!(Selector::compile(&"true ? ".repeat(depth)).is_err());
        assert!(Selector::compile(&"f(".repeat(depth)).is_err());
    }
}

#[test]
fn operators_in_a_row_beyond_the_limit_are_refused() {
    let sum = |count: usize| format!("1{} > 0", " + 1".repeat(count));
    assert_eq!(matches(&sum(200)), Ok(true));
    assert!(Selector::compile(&sum(300)).is_err());
    assert!(Selector::compile(&format!("device{}", ".a".repeat(5000))).is_err());
    assert!(Selector::compile(&format!("device{}", "[0]".repeat(3000))).is_err());
    assert!(Selector::compile(&format!("'a'{} == 'a'", ".trim()".repeat(1000))).is_err());
    assert!(Selector::compile(&format!("optional.of(1){}", ".optMap(a, a)".repeat(700))).is_err());
    assert_eq!(matches(&format!("{}true", "!".repeat(10_000))), Ok(true));
    assert_eq!(matches(&format!("true{}", " || true".repeat(1000))), Ok(true));
}

#[test]
fn the_deepest_expression_runs_on_a_small_stack() {
    // Brackets and operators in a row at their combined limit.
    let mut deepest = "1".to_owned();
    for _ in 0..60 {
        deepest = format!("({deepest} + 1 + 1 + 1)");
    }
    let expression = format!("{deepest} > 0");
    let run = move || matches(&expression);
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
    assert_eq!(thread.join().unwrap(), Ok(true));
}

#[test]
fn every_signature_of_the_library_can_be_read() {
    for function in FUNCTIONS.values() {
        assert!(!function.overloads.is_empty(), "{}", function.name);
    }
    let overloads: usize = FUNCTIONS.values().map(|function| function.overloads.len()).sum();
    assert_eq!(overloads, crate::library::signatures(), "none was dropped");
}
