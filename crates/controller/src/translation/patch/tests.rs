use serde_json::{Value, json};

use super::difference;

#[test]
fn only_what_differs_is_written() {
    let before =
        json!({"a": {"x/y~z": 1, "gone": true}, "list": [{"n": 1}, {"n": 2}], "same": "s"});
    let after =
        json!({"a": {"x/y~z": 2}, "list": [{"n": 1}, {"n": 2, "new": []}], "same": "s", "b": {}});
    let expected = json!([
        {"op": "remove", "path": "/a/gone"},
        {"op": "replace", "path": "/a/x~1y~0z", "value": 2},
        {"op": "add", "path": "/b", "value": {}},
        {"op": "add", "path": "/list/1/new", "value": []},
    ]);
    assert_eq!(Value::from(difference(&before, &after)), expected);
    assert!(difference(&before, &before).is_empty());
}

#[test]
fn lists_of_another_length_and_other_kinds_are_replaced() {
    let before = json!({"list": [1], "kind": {"a": 1}});
    let after = json!({"list": [1, 2], "kind": null});
    let expected = json!([
        {"op": "replace", "path": "/kind", "value": null},
        {"op": "replace", "path": "/list", "value": [1, 2]},
    ]);
    assert_eq!(Value::from(difference(&before, &after)), expected);
}
