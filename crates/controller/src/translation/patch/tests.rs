use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
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

/// Applies operations as an API server does.
fn apply(mut value: Value, operations: &[Value]) -> Value {
    for operation in operations {
        let path = operation["path"].as_str().unwrap();
        let new = operation.get("value").cloned().unwrap_or_default();
        let Some((parent, key)) = path.rsplit_once('/') else {
            value = new;
            continue;
        };
        let key = key.replace("~1", "/").replace("~0", "~");
        let parent = value.pointer_mut(parent).unwrap();
        match (operation["op"].as_str().unwrap(), parent) {
            ("remove", Value::Object(fields)) => drop(fields.remove(&key).unwrap()),
            ("add", Value::Object(fields)) => assert_eq!(fields.insert(key, new), None),
            ("replace", Value::Object(fields)) => *fields.get_mut(&key).unwrap() = new,
            ("replace", Value::Array(elements)) => elements[key.parse::<usize>().unwrap()] = new,
            other => panic!("{other:?}"),
        }
    }
    value
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3).prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("[a~/]{0,2}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn the_operations_make_one_value_of_the_other(before in any_json(), after in any_json()) {
        let operations = difference(&before, &after);
        prop_assert_eq!(apply(before.clone(), &operations), after, "{:?}", operations);
        prop_assert!(difference(&before, &before).is_empty());
    }
}
