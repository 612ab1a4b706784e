//! Objects are read whatever their texts and numbers, and no JSON structure panics.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::objects::convert::{Reader, WatchedType};
use crate::objects::{
    Budget, Claim, CsiNode, DeviceClass, Meta, Node, PersistentVolume, Pod, ResourceSlice,
    StorageClass, VolumeClaim, WatchedObject,
};

fn fixtures() -> [Value; 4] {
    let node = json!({"metadata": {"name": "n", "labels": {"a": "b"}, "creationTimestamp": "x"},
        "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi"},
            "conditions": [{"type": "Ready", "status": "True"}]}});
    let text = [
        include_str!("fixtures/pod.json"),
        include_str!("fixtures/claim.json"),
        include_str!("fixtures/slice.json"),
    ];
    let [pod, claim, slice] = text.map(|text| serde_json::from_str(text).unwrap());
    [pod, claim, slice, node]
}

/// All leaves of a value except times, which the API server validates.
fn leaves(value: &mut Value) -> Vec<&mut Value> {
    let is_time =
        |key: &str| key.ends_with("Timestamp") || key.ends_with("Time") || key == "timeAdded";
    match value {
        Value::Array(all) => all.iter_mut().flat_map(leaves).collect(),
        Value::Object(map) => {
            let map = map.iter_mut().filter(|(key, _)| !is_time(key));
            map.flat_map(|(_, value)| leaves(value)).collect()
        }
        leaf => vec![leaf],
    }
}

/// Replaces one value at any depth.
fn all(value: &mut Value, at: usize, seen: &mut usize, put: &Value) {
    if *seen == at {
        *value = put.clone();
    }
    *seen += 1;
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| all(item, at, seen, put)),
        Value::Object(map) => map.values_mut().for_each(|item| all(item, at, seen, put)),
        _ => {}
    }
}

/// Reads a value if it has the structure.
fn read<T: WatchedType>(value: &Value) -> Result<Option<T>, serde_json::Error> {
    let wire = serde_json::from_value(value.clone())?;
    Ok(T::read(wire, &mut Reader::default()))
}

/// Reads a value as each kind.
fn read_as_all(value: &Value) {
    let _ = read::<Pod>(value);
    let _ = read::<Node>(value);
    let _ = read::<Meta>(value);
    let _ = read::<Claim>(value);
    let _ = read::<DeviceClass>(value);
    let _ = read::<ResourceSlice>(value);
    let _ = read::<VolumeClaim>(value);
    let _ = read::<PersistentVolume>(value);
    let _ = read::<StorageClass>(value);
    let _ = read::<CsiNode>(value);
    let _ = read::<Budget>(value);
    let _ = read::<WatchedObject>(value);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-zA-Z0-9./ -]{0,12}",
        Just(String::new()),
        Just("-1".to_owned()),
        Just("99999999999999999999999999999999999999999E".to_owned()),
        Just("1e99999".to_owned()),
        Just("ü".to_owned()),
    ]
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any_text().prop_map(Value::from),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null, {}, "a", 1])),
        Just(json!({"a": null, "cpu": {"b": []}})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn other_texts_and_numbers_never_keep_an_object_from_being_read(
        which in 0..4_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any_text(), any::<i32>()), 1..6),
    ) {
        let mut value = fixtures()[which].clone();
        for (index, text, number) in changes {
            let mut leaves = leaves(&mut value);
            let leaf = index.get_mut(&mut leaves);
            match leaf {
                Value::String(old) => *old = text,
                Value::Number(_) => **leaf = number.into(),
                _ => {}
            }
        }
        match which {
            0 => prop_assert!(read::<Pod>(&value).is_ok_and(|read| read.is_some())),
            1 => prop_assert!(read::<Claim>(&value).is_ok_and(|read| read.is_some())),
            // A slice may be unreadable as a whole, but it has the structure.
            2 => prop_assert!(read::<ResourceSlice>(&value).is_ok()),
            _ => prop_assert!(read::<Node>(&value).is_ok_and(|read| read.is_some())),
        }
    }

    #[test]
    fn no_shape_makes_reading_panic(
        which in 0..4_usize,
        changes in prop::collection::vec((0..150_usize, any_value()), 1..6),
    ) {
        let mut value = fixtures()[which].clone();
        for (at, put) in changes {
            all(&mut value, at, &mut 0, &put);
        }
        read_as_all(&value);
    }
}
