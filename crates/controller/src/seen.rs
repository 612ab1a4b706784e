//! Objects of which a watch reads few fields. A page of a list has hundreds of them, and what is not read takes no memory.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use serde_json::Value;

/// An object of the kind `K` with some fields of its spec and of its status.
#[derive(Clone, Debug, Deserialize)]
#[serde(bound(deserialize = "P: Default + Deserialize<'de>, U: Default + Deserialize<'de>"))]
pub struct Seen<K, P, U> {
    /// Name, namespace, UID, version and labels.
    #[serde(default, deserialize_with = "brief")]
    pub metadata: ObjectMeta,
    /// Fields of the spec.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: P,
    /// Fields of the status.
    #[serde(default, deserialize_with = "or_default")]
    pub status: U,
    #[serde(skip)]
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>, P, U> Resource for Seen<K, P, U> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Metadata without `managedFields`, which are longer than many an object.
fn brief<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Brief {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        labels: Option<BTreeMap<String, String>>,
    }
    let Brief { name, namespace, uid, resource_version, labels } =
        Brief::deserialize(deserializer)?;
    Ok(ObjectMeta { name, namespace, uid, resource_version, labels, ..ObjectMeta::default() })
}

/// Reads a list one item after another, so that no two items are in memory as JSON. What `read` refuses is left out, and what is no list is
/// empty: an object of another version stops no watch.
pub(crate) fn each<'de, D: Deserializer<'de>, T>(
    deserializer: D,
    read: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<T>, D::Error> {
    struct Each<F>(F);

    impl<'de, T, F: Fn(&Value) -> Option<T>> Visitor<'de> for Each<F> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
            let mut all = Vec::new();
            while let Some(item) = items.next_element::<Value>()? {
                all.extend((self.0)(&item));
            }
            Ok(all)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
            IgnoredAny.visit_map(map).map(|_| Vec::new())
        }

        fn visit_str<E: de::Error>(self, _: &str) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_bool<E: de::Error>(self, _: bool) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_i64<E: de::Error>(self, _: i64) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_u64<E: de::Error>(self, _: u64) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_f64<E: de::Error>(self, _: f64) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }

        fn visit_unit<E: de::Error>(self) -> Result<Vec<T>, E> {
            Ok(Vec::new())
        }
    }

    deserializer.deserialize_any(Each(read))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::core::NotUsed;
    use serde_json::json;

    use super::*;

    #[derive(Clone, Debug, Default, Deserialize)]
    struct Spec {
        #[serde(default, deserialize_with = "numbers")]
        numbers: Vec<u64>,
    }

    fn numbers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u64>, D::Error> {
        each(deserializer, Value::as_u64)
    }

    #[test]
    fn fields_that_are_not_named_are_not_read() {
        let read = |spec: Value| -> Seen<Node, Spec, NotUsed> {
            let metadata = json!({
                "name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"},
                "managedFields": [{"manager": "m"}],
            });
            let status = json!({"phase": "Running"});
            let object = json!({"metadata": metadata, "spec": spec, "status": status});
            serde_json::from_str(&object.to_string()).unwrap()
        };
        let object = read(json!({"numbers": [1, "two", 3], "podCIDR": "10.0.0.0/24"}));
        assert_eq!(object.spec.numbers, [1, 3]);
        assert_eq!(object.meta().name.as_deref(), Some("n"));
        assert_eq!(object.meta().labels.as_ref().unwrap()["a"], "b");
        assert_eq!(object.meta().managed_fields, None);
        for other in [json!(null), json!({"a": 1}), json!("a"), json!(true), json!(7), json!(0.5)] {
            assert!(read(json!({"numbers": other})).spec.numbers.is_empty());
        }
        assert!(read(Value::Null).spec.numbers.is_empty());
        assert_eq!(Seen::<Node, Spec, NotUsed>::plural(&()), "nodes");
    }
}
