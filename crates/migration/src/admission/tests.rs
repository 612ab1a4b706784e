use serde_json::{Value, json};

use super::pod_condition;
use crate::keys::{
    HAMI_RESOURCES, exact_signs, exceptions, is_annotation_sign, is_label_sign, is_scheduler,
    schedulers, sign_prefixes,
};
use crate::{Options, Origin, translate};

/// Texts between quotes, in order.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('\'').skip(1).step_by(2)
}

/// Keys that the condition names, and others.
fn keys() -> Vec<String> {
    let others = [
        "nvidia.com/gpu",
        "hami.iox",
        "mps",
        "priorityClassName",
        "pod-group-name",
        "runai-gpu-group",
        "runai-gpu-group/a",
        "kai.scheduler/node-pool",
        "kai.scheduler/subgroup-name",
        "kai.scheduler/topology-required-placement",
    ];
    let made = sign_prefixes().map(|prefix| format!("{prefix}x"));
    let condition = pod_condition();
    made.chain(quoted(&condition).chain(others).map(str::to_owned)).collect()
}

#[test]
fn the_condition_has_every_sign_and_no_other_text() {
    let condition = pod_condition();
    assert_eq!(condition.matches('\'').count() % 2, 0);
    for prefix in sign_prefixes() {
        assert!(condition.contains(&format!("k.startsWith('{prefix}')")), "{prefix}");
    }
    for key in exact_signs() {
        assert!(condition.contains(&format!("'{key}'")), "{key}");
    }
    for text in quoted(&condition) {
        let is_known = exact_signs().any(|key| key == text)
            || exceptions(is_annotation_sign).any(|key| key == text)
            || exceptions(is_label_sign).any(|key| key == text)
            || is_scheduler(text)
            || HAMI_RESOURCES.contains(&text)
            || sign_prefixes().any(|prefix| prefix == text);
        assert!(is_known, "{text}");
    }
    assert_eq!(schedulers().count(), 3);
}

#[test]
fn the_lists_of_the_condition_and_the_translation_name_the_same_keys() {
    let options = Options { is_admission: true, ..Options::default() };
    for key in keys() {
        let has_prefix = sign_prefixes().any(|prefix| key.starts_with(prefix));
        let is_exact = exact_signs().any(|exact| exact == key);
        let except = |is_sign| exceptions(is_sign).any(|other| other == key);
        for (kind, is_listed) in [
            ("annotations", is_exact || has_prefix && !except(is_annotation_sign)),
            ("labels", has_prefix && !except(is_label_sign)),
        ] {
            let metadata: Value = json!({ kind: { key.as_str(): "x" } });
            let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "main"}]}});
            let is_concerned = translate(&pod, &Origin::default(), &options) != Ok(None);
            assert_eq!(is_concerned, is_listed, "{key} of {kind}");
        }
    }
}
