//! The cache of compiled selectors.

use std::sync::Arc;

use crate::SelectorCache;

#[test]
fn an_expression_is_compiled_once() {
    let selectors = SelectorCache::default();
    let first = selectors.get("true").unwrap();
    assert!(Arc::ptr_eq(&first, &selectors.get("true").unwrap()));
    assert_eq!(first.expression(), "true");
}

#[test]
fn errors_are_kept_too() {
    let selectors = SelectorCache::default();
    let error = selectors.get("1").unwrap_err();
    assert_eq!(selectors.get("1").unwrap_err(), error);
    assert_eq!(selectors.len(), 1);
}

#[test]
fn the_expression_unused_longest_goes_first() {
    let selectors = SelectorCache::default();
    let kept = selectors.get("true").unwrap();
    for number in 0..600 {
        selectors.get(&format!("{number} == {number}")).unwrap();
        // Keep it recently used.
        selectors.get("true").unwrap();
    }
    assert_eq!(selectors.len(), 512);
    assert!(Arc::ptr_eq(&kept, &selectors.get("true").unwrap()));
}
