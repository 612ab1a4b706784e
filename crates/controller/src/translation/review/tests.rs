use octavo_migration::{GpuModel, ModelSource, Models};

use super::*;

fn options() -> Options {
    let model = GpuModel { product_name: "NVIDIA L4".to_owned(), memory_mib: 23034 };
    Options {
        models: Models::new([model]).unwrap(),
        models_from: ModelSource::Cluster,
        scheduler_name: None,
        is_admission: true,
    }
}

fn request(metadata: &Value, spec: &Value) -> Request {
    let request = json!({
        "uid": "u", "namespace": "team", "object": {"metadata": metadata, "spec": spec},
    });
    serde_json::from_value(request).unwrap()
}

/// A pod as the API server sends it: defaults and results of admission are in it.
fn fraction(fraction: &str) -> Request {
    request(
        &json!({"generateName": "train-", "namespace": "team", "annotations": {"gpu-fraction": fraction},
            "labels": {"priorityClassName": "train", "kai.scheduler/queue": "research"}}),
        &json!({"schedulerName": "kai-scheduler", "priority": 0, "preemptionPolicy": "PreemptLowerPriority",
            "runtimeClassName": "nvidia", "overhead": {"memory": "1Mi"},
            "containers": [{"name": "main", "resources": {}}]}),
    )
}

#[test]
fn a_translation_is_a_patch_and_labelled_templates() {
    let Decision::Translated { templates, patch, changes } = decide(&fraction("0.5"), &options())
    else {
        panic!("it is translated")
    };
    let [template] = &templates[..] else { panic!("{templates:?}") };
    assert_eq!(template["metadata"]["labels"], json!({"octavo.dev/translated": "true"}));
    assert_eq!(template["metadata"]["namespace"], "team");
    let name = template["metadata"]["name"].as_str().unwrap();
    assert!(name.starts_with("octavo-gpu-"), "{name}");
    let claim = json!([{"name": "gpu", "resourceClaimTemplateName": name}]);
    let operation = |op: &str, path: &str| {
        patch
            .iter()
            .find(|it| it["op"] == op && it["path"] == path)
            .unwrap_or_else(|| panic!("{path}: {patch:?}"))
    };
    assert_eq!(operation("add", "/spec/resourceClaims")["value"], claim);
    assert_eq!(operation("add", "/spec/priorityClassName")["value"], "train");
    for path in ["schedulerName", "priority", "preemptionPolicy", "runtimeClassName", "overhead"] {
        operation("remove", &format!("/spec/{path}"));
    }
    operation("remove", "/metadata/annotations");
    let of_labels = |it: &Value| it["path"].as_str().unwrap().starts_with("/metadata/labels");
    assert!(!patch.iter().any(of_labels), "{patch:?}");
    let warnings = warnings(&changes);
    assert!(
        warnings
            .iter()
            .any(|it| it.starts_with("octavo: annotation gpu-fraction: 0.5 -> claim gpu"))
    );
    let review = Answer::Changed { patch, warnings }.review("u");
    assert_eq!(review["response"]["allowed"], true);
    assert_eq!(review["response"]["patchType"], "JSONPatch");
}

#[test]
fn a_default_priority_class_goes_with_its_results() {
    let mut pod = fraction("0.5");
    pod.object["spec"]["priorityClassName"] = "default".into();
    let Decision::Translated { patch, .. } = decide(&pod, &options()) else { panic!() };
    let class = json!({"op": "replace", "path": "/spec/priorityClassName", "value": "train"});
    assert!(patch.contains(&class), "{patch:?}");
    for path in ["/spec/priority", "/spec/preemptionPolicy"] {
        assert!(patch.contains(&json!({"op": "remove", "path": path})), "{patch:?}");
    }
}

#[test]
fn results_of_fields_that_stay_are_kept() {
    let pod = request(
        &json!({"name": "p", "annotations": {"gpu-memory": "1000"}}),
        &json!({"priority": 7, "priorityClassName": "mine", "overhead": {}, "containers": [{"name": "main"}]}),
    );
    let Decision::Translated { patch, .. } = decide(&pod, &options()) else { panic!() };
    assert!(
        patch.iter().all(|it| it["path"] != "/spec/priority" && it["path"] != "/spec/overhead")
    );
}

#[test]
fn equal_demands_of_pods_share_a_template() {
    let name = |request: &Request| match decide(request, &options()) {
        Decision::Translated { templates, .. } => templates[0]["metadata"]["name"].clone(),
        other => panic!("{other:?}"),
    };
    let mut other = fraction("0.5");
    other.object["metadata"]["generateName"] = "infer-".into();
    assert_eq!(name(&fraction("0.5")), name(&other));
    assert_ne!(name(&fraction("0.5")), name(&fraction("0.25")));
}

#[test]
fn refusals_have_field_cause_remedy_and_reason() {
    for (written, cause) in [("0", "a fraction is above 0"), ("1.5", "a fraction is below 1")] {
        let Decision::Refused(refusals) = decide(&fraction(written), &options()) else { panic!() };
        let text = refusal_text(&refusals);
        let begin =
            format!("octavo: annotation gpu-fraction: {written} is refused because {cause}; ");
        assert!(text.starts_with(&begin) && text.ends_with("(OutOfRange)"), "{text}");
        let review = Answer::Refused(text).review("u");
        assert_eq!(review["response"]["allowed"], false);
        assert_eq!(review["response"]["status"]["code"], 403);
    }
    let above = json!({"limits": {"nvidia.com/gpumem": 23035}});
    let spec = json!({"containers": [{"name": "main", "resources": above}]});
    let Decision::Refused(refusals) = decide(&request(&json!({}), &spec), &options()) else {
        panic!()
    };
    assert!(refusal_text(&refusals).contains("the largest known GPU has 23034Mi (NVIDIA L4)"));
}

#[test]
fn other_pods_are_unchanged() {
    let whole = json!({"limits": {"nvidia.com/gpu": 1}});
    let spec = json!({"containers": [{"name": "main", "resources": whole}]});
    assert_eq!(decide(&request(&json!({"name": "p"}), &spec), &options()), Decision::Unchanged);
    assert_eq!(Answer::Unchanged.review("u")["response"], json!({"uid": "u", "allowed": true}));
}

fn counted(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(counted).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(counted).sum::<usize>(),
        _ => 1,
    }
}

#[test]
fn the_values_of_a_text_are_bounded_before_they_are_made() {
    for value in [
        json!(1),
        json!([]),
        json!([[], {}, [1, 2, "a,b"]]),
        json!({"a": {"b": [null, true]}, "c,[{": "\"],\\", "d": {"e": {}}}),
        json!(vec![json!({"": 0}); 100]),
        fraction("0.5").object,
    ] {
        let (bound, count) = (values(value.to_string().as_bytes()), counted(&value));
        assert!((count..=2 * count).contains(&bound), "{bound} for {count} of {value}");
    }
    // A text counts once, whatever it has.
    assert_eq!(values(json!("[{,".repeat(1000)).to_string().as_bytes()), 1);
}
