use serde_json::{Value, json};

use super::fixtures::{annotated, options, pod, reasons, try_translate};
use crate::{GpuModel, ModelSource, Models, Options, Origin, Reason, translate};

#[test]
fn resources_without_an_equal_are_refused() {
    for (limits, expected) in [
        (json!({"nvidia.com/gpumem": 1000, "nvidia.com/gpumem-percentage": 50}), "Conflict"),
        (json!({"nvidia.com/gpumem": 81560}), "TooMuchMemory"),
        (json!({"nvidia.com/gpumem": 3_000_000_000_u64}), "OutOfRange"),
        (json!({"nvidia.com/gpumem": -1}), "OutOfRange"),
        (json!({"nvidia.com/gpumem": "1500m"}), "OutOfRange"),
        (json!({"nvidia.com/gpumem": "much"}), "NotANumber"),
        (json!({"nvidia.com/gpumem": [1]}), "NotANumber"),
        (json!({"nvidia.com/gpumem-percentage": 101}), "OutOfRange"),
        (json!({"nvidia.com/gpucores": 101}), "OutOfRange"),
        (json!({"nvidia.com/gpu": 1, "nvidia.com/priority": 2}), "OutOfRange"),
        (json!({"nvidia.com/gpu": 33, "nvidia.com/gpumem": 1000}), "TooManyGpus"),
    ] {
        assert_eq!(reasons(&pod(limits.clone(), json!({}))), [expected], "{limits}");
    }
}

#[test]
fn annotations_without_an_equal_are_refused() {
    for (annotations, expected) in [
        (json!({"nvidia.com/vgpu-mode": "mig"}), "NoEqual"),
        (json!({"nvidia.com/vgpu-mode": "mps"}), "NoEqual"),
        (json!({"nvidia.com/vgpu-mode": "other"}), "MatchesNothing"),
        (json!({"nvidia.com/use-gputype": ","}), "MatchesNothing"),
        (json!({"nvidia.com/nouse-gputype": "NVIDIA"}), "MatchesNothing"),
        (json!({"nvidia.com/use-gpuuuid": " , "}), "MatchesNothing"),
        (json!({"hami.io/node-scheduler-policy": "spread"}), "NoEqual"),
        (json!({"hami.io/gpu-scheduler-policy": "spread"}), "NoEqual"),
        (json!({"hami.io/gpu-scheduler-policy": "mutex"}), "NoEqual"),
        (json!({"hami.io/gpu-scheduler-policy": "numa"}), "NoEqual"),
        (json!({"hami.io/gpu-scheduler-policy": "other"}), "NoEqual"),
        (json!({"hami.io/device-scoring-weights": "slot=1"}), "NoEqual"),
        (json!({"hami.io/new": "x"}), "UnknownKey"),
        (json!({"kai.scheduler/new": "x"}), "UnknownKey"),
        (json!({"kai.scheduler/node-pool": "x"}), "NoEqual"),
        (json!({"gpu-fraction": "0"}), "OutOfRange"),
        (json!({"gpu-fraction": "1.5"}), "OutOfRange"),
        (json!({"gpu-fraction": "half"}), "NotANumber"),
        (json!({"gpu-memory": "0"}), "OutOfRange"),
        (json!({"gpu-memory": "2Gi"}), "NotANumber"),
        (json!({"gpu-memory": "18446744073709551615"}), "TooMuchMemory"),
        (json!({"gpu-fraction": "0.5", "gpu-memory": "1000"}), "Conflict"),
        (json!({"gpu-fraction-num-devices": "2"}), "Conflict"),
        (json!({"gpu-memory": "1000", "gpu-fraction-num-devices": "0"}), "OutOfRange"),
        (json!({"gpu-memory": "1000", "gpu-fraction-num-devices": "x"}), "NotANumber"),
        (json!({"gpu-memory": "1000", "gpu-fraction-num-devices": "33"}), "TooManyGpus"),
        (json!({"gpu-memory": "1000", "gpu-fraction-container-name": "x"}), "NoSuchContainer"),
        (json!({"gpu-memory": "1000", "mps": "true"}), "NoEqual"),
        (json!({"gpu-fraction": "0.5", "nvidia.com/use-gputype": "B200"}), "NoModel"),
    ] {
        assert_eq!(reasons(&annotated(annotations.clone())), [expected], "{annotations}");
    }
}

#[test]
fn both_schedulers_at_once_are_refused() {
    let fraction = json!({"gpu-memory": "1000"});
    assert_eq!(reasons(&pod(json!({"nvidia.com/gpumem": 1000}), fraction.clone())), ["Conflict"]);
    assert_eq!(reasons(&pod(json!({"nvidia.com/gpu": 1}), fraction)), ["Conflict"]);
}

#[test]
fn all_refusals_come_at_once_each_with_a_remedy() {
    let pod = pod(
        json!({"nvidia.com/gpumem": "x", "nvidia.com/gpucores": 200, "nvidia.com/priority": 7}),
        json!({"nvidia.com/vgpu-mode": "mig", "hami.io/new": "x"}),
    );
    let refusals = try_translate(&pod).unwrap_err();
    assert_eq!(refusals.len(), 5, "{refusals:?}");
    for refusal in refusals {
        assert!(!refusal.cause.is_empty() && !refusal.remedy.is_empty());
        assert!(refusal.to_string().contains(" is refused because "), "{refusal}");
    }
}

#[test]
fn fractions_need_models_and_amounts_do_not() {
    let none = Options::default();
    let origin = Origin::default();
    let fraction = annotated(json!({"gpu-fraction": "0.5"}));
    let refusals = translate(&fraction, &origin, &none).unwrap_err();
    assert_eq!(refusals[0].reason, Reason::NoModel);
    assert!(refusals[0].remedy.contains("--models"), "{}", refusals[0]);
    let amount = annotated(json!({"gpu-memory": "1000000"}));
    assert!(translate(&amount, &origin, &none).unwrap().is_some());

    let model = |index: u64| GpuModel { product_name: format!("GPU {index}"), memory_mib: 1000 };
    let models = |count| Options {
        models: Models::new((0..count).map(model)).unwrap(),
        ..Options::default()
    };
    assert!(translate(&fraction, &origin, &models(8)).unwrap().is_some());
    let refusals = translate(&fraction, &origin, &models(9)).unwrap_err();
    assert_eq!(refusals[0].reason, Reason::TooManyModels);

    // A pod of a cluster comes with no list.
    let refused = |options: Options, pod: &Value| {
        let options = Options { models_from: ModelSource::Cluster, ..options };
        translate(pod, &origin, &options).unwrap_err()[0].to_string()
    };
    let text = refused(none, &fraction);
    assert!(
        text.contains("no ResourceSlice has a GPU") && text.contains("octavo doctor"),
        "{text}"
    );
    assert!(refused(models(9), &fraction).contains("nvidia.com/use-gputype"));
    assert!(refused(models(1), &amount).ends_with("ask for less, or for several GPUs"));
    let typed = annotated(json!({"gpu-fraction": "0.5", "nvidia.com/use-gputype": "H100"}));
    assert!(refused(models(1), &typed).contains("name other types"));
}

#[test]
fn a_selector_that_is_too_long_is_refused() {
    let uuids = (0..400).map(|index| format!("GPU-00000000-0000-0000-0000-{index:012}"));
    let list = uuids.collect::<Vec<_>>().join(",");
    let pod = pod(json!({"nvidia.com/gpu": 1}), json!({"nvidia.com/use-gpuuuid": list}));
    assert_eq!(reasons(&pod), ["ExpressionTooLong"]);
}

#[test]
fn malformed_claims_are_refused() {
    let mut pod = pod(json!({"nvidia.com/gpumem": 1000}), json!({}));
    pod["spec"]["resourceClaims"] = "none".into();
    assert_eq!(reasons(&pod), ["Malformed"]);
}

#[test]
fn lists_of_models_are_checked() {
    let list = "- {productName: NVIDIA L4, memory: 23034Mi}\n- {productName: NVIDIA L4, memory: 23034Mi}\n";
    let models = Models::parse(list).unwrap();
    assert_eq!(models.as_slice(), &options().models.as_slice()[1..2]);
    for (text, problem) in [
        ("- {productName: A, memory: 1Mi}\n- {productName: A, memory: 2Mi}", "1Mi and 2Mi"),
        ("- {productName: A, memory: 1Ki}", "at least 1Mi"),
        ("- {productName: A, memory: much}", "at least 1Mi"),
        ("- {productName: '', memory: 1Mi}", "empty productName"),
        ("- {productName: A}", "not valid"),
        ("A: 1Mi", "not valid"),
    ] {
        let error = Models::parse(text).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
}
