use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::fixtures::options;
use crate::keys::{HAMI_RESOURCES, is_scheduler, is_sign};
use crate::{Models, Options, Origin, translate, translate_document, translate_manifests};

/// Names that mean something, so that arbitrary values are found in places that are read.
const KEYS: [&str; 34] = [
    "apiVersion",
    "kind",
    "metadata",
    "name",
    "labels",
    "annotations",
    "spec",
    "containers",
    "initContainers",
    "resources",
    "limits",
    "requests",
    "claims",
    "resourceClaims",
    "schedulerName",
    "runtimeClassName",
    "priorityClassName",
    "restartPolicy",
    "template",
    "items",
    "nvidia.com/gpu",
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
    "nvidia.com/use-gputype",
    "nvidia.com/nouse-gpuuuid",
    "nvidia.com/vgpu-mode",
    "hami.io/gpu-scheduler-policy",
    "gpu-fraction",
    "gpu-memory",
    "gpu-fraction-container-name",
    "kai.scheduler/queue",
    "mps",
];

const TEXTS: [&str; 14] = [
    "v1",
    "Pod",
    "List",
    "main",
    "0.5",
    "50",
    "1000",
    "NaN",
    "Always",
    "hami-scheduler",
    "kai-scheduler",
    "nvidia",
    "A100,B",
    "hami-core",
];

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0_i64..200).prop_map(Value::from),
        proptest::sample::select(&TEXTS[..]).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ]
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        9 => proptest::sample::select(&KEYS[..]).prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn json_value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(7, 60, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::Array),
            btree_map(key(), inner, 0..6).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn amounts() -> impl Strategy<Value = Value> {
    let keys = [
        "nvidia.com/gpu",
        "nvidia.com/gpumem",
        "nvidia.com/gpumem-percentage",
        "nvidia.com/gpucores",
        "cpu",
    ];
    btree_map(proptest::sample::select(keys.to_vec()), 0_u64..120, 0..4).prop_map(|map| json!(map))
}

/// A pod that is mostly valid.
fn pod() -> impl Strategy<Value = Value> {
    let annotations = [
        ("gpu-fraction", "0.25"),
        ("gpu-memory", "2000"),
        ("gpu-fraction-num-devices", "2"),
        ("nvidia.com/use-gputype", "H100,L4"),
        ("nvidia.com/nouse-gpuuuid", "GPU-1"),
        ("nvidia.com/numa-bind", "true"),
        ("nvidia.com/vgpu-mode", "hami-core"),
        ("hami.io/gpu-scheduler-policy", "binpack"),
        ("hami.io/vgpu-node", "n1"),
        ("kai.scheduler/topology-required-placement", "rack"),
        ("mine", "x"),
    ];
    let annotations = proptest::sample::subsequence(annotations.to_vec(), 0..5);
    let labels = proptest::sample::subsequence(
        vec!["kai.scheduler/queue", "runai/queue", "priorityClassName", "app"],
        0..4,
    );
    let scheduler = proptest::sample::select(vec![
        Value::Null,
        json!("kai-scheduler"),
        json!("hami-scheduler"),
        json!("volcano"),
    ]);
    (vec((amounts(), any::<bool>()), 0..3), vec(amounts(), 1..3), annotations, labels, scheduler).prop_map(
        |(init, containers, annotations, labels, scheduler)| {
            let init = init.into_iter().enumerate().map(|(index, (limits, sidecar))| {
                let policy = if sidecar { json!("Always") } else { Value::Null };
                json!({"name": format!("i{index}"), "restartPolicy": policy, "resources": {"limits": limits}})
            });
            let containers = containers.into_iter().enumerate().map(|(index, limits)| {
                json!({"name": format!("c{index}"), "resources": {"limits": limits, "requests": limits}})
            });
            let annotations: Map<String, Value> =
                annotations.into_iter().map(|(key, value)| (key.to_owned(), value.into())).collect();
            let labels: Map<String, Value> =
                labels.into_iter().map(|key| (key.to_owned(), "x".into())).collect();
            json!({
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "p", "annotations": annotations, "labels": labels},
                "spec": {
                    "schedulerName": scheduler,
                    "initContainers": init.collect::<Vec<_>>(),
                    "containers": containers.collect::<Vec<_>>(),
                },
            })
        },
    )
}

/// Whether an object anywhere has a key of HAMi or KAI.
fn has_key(value: &Value) -> bool {
    match value {
        Value::Array(elements) => elements.iter().any(has_key),
        Value::Object(fields) => fields.iter().any(|(key, value)| {
            HAMI_RESOURCES.contains(&key.as_str())
                || is_sign(key)
                || key == "schedulerName" && value.as_str().is_some_and(is_scheduler)
                || has_key(value)
        }),
        _ => false,
    }
}

proptest! {
    #[test]
    fn arbitrary_json_is_never_a_panic(value in json_value(), with_models in any::<bool>()) {
        let models = if with_models { options().models } else { Models::default() };
        let scheduler_name = with_models.then(|| "octavo".to_owned());
        let options = Options { models, scheduler_name, ..Options::default() };
        let _ = translate(&value, &Origin::default(), &options);
        let _ = translate_document(&value, &options);
        let _ = translate_manifests(&value.to_string(), &options);
    }

    #[test]
    fn arbitrary_text_is_never_a_panic(text in "(nvidia.com/|---|\\.\\.\\.|[\\n :{}\\[\\]#\"'&*!|>%-]|[a-z]|\\PC){0,40}") {
        let _ = translate_manifests(&text, &options());
        let _ = Models::parse(&text);
    }

    #[test]
    fn a_translation_has_nothing_to_translate(pod in pod()) {
        if let Ok(Some(translation)) = translate(&pod, &Origin::default(), &options()) {
            prop_assert_eq!(translate(&translation.pod, &Origin::default(), &options()), Ok(None));
            prop_assert!(!has_key(&translation.pod), "{}", translation.pod);
            prop_assert!(!translation.changes.is_empty());
            let again = translate(&pod, &Origin::default(), &options());
            prop_assert_eq!(again, Ok(Some(translation)));
        }
    }

    #[test]
    fn labels_stay_at_admission(pod in pod()) {
        let options = Options { is_admission: true, ..options() };
        if let Ok(Some(translation)) = translate(&pod, &Origin::default(), &options) {
            prop_assert_eq!(&translation.pod["metadata"]["labels"], &pod["metadata"]["labels"]);
            prop_assert_eq!(translate(&translation.pod, &Origin::default(), &options), Ok(None));
        }
    }

    #[test]
    fn claims_and_templates_belong_together(pod in pod()) {
        if let Ok(Some(translation)) = translate(&pod, &Origin::default(), &options()) {
            let claims = translation.pod["spec"]["resourceClaims"].as_array().cloned().unwrap_or_default();
            let templates = |claim: &Value| translation.templates.iter()
                .filter(|template| template["metadata"]["name"] == claim["resourceClaimTemplateName"]).count();
            for claim in &claims {
                prop_assert_eq!(templates(claim), 1);
            }
            for list in ["containers", "initContainers"] {
                for container in translation.pod["spec"][list].as_array().into_iter().flatten() {
                    for named in container["resources"]["claims"].as_array().into_iter().flatten() {
                        prop_assert!(claims.iter().any(|claim| claim["name"] == named["name"]));
                    }
                }
            }
        }
    }
}
