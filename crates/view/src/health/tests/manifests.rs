use crate::health::check;

const VALID: &str = "
apiVersion: octavo.dev/v1alpha1
kind: HealthPolicy
metadata: {name: h100}
spec:
  nodeSelector: {pool: h100}
  mode: Act
  remedies: [resetFunction, reboot]
  xidClasses: {48: reset, '62': reboot}
";

#[test]
fn a_valid_policy_says_what_it_does() {
    let checked = check(VALID).unwrap();
    assert!(checked.is_valid, "{checked:?}");
    assert_eq!(
        checked.lines,
        [
            "HealthPolicy h100: valid; mode Act, nodes with pool=h100, remedies resetFunction, reboot, no pod is evicted"
        ]
    );
    let json = r#"{"apiVersion": "octavo.dev/v1alpha1", "kind": "HealthPolicy", "metadata": {"name": "a"},
        "spec": {"nodeSelector": {"pool": "a"}, "evict": true, "remedies": []}}"#;
    let checked = check(json).unwrap();
    assert!(checked.is_valid && checked.lines[0].ends_with("remedies none, pods are evicted"));
}

#[test]
fn the_examples_are_valid() {
    for name in ["policy", "template"] {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/health");
        let text = std::fs::read_to_string(format!("{folder}/{name}.yaml")).unwrap();
        let checked = check(&text).unwrap();
        assert!(checked.is_valid, "{checked:?}");
    }
}

#[test]
fn every_problem_is_found_with_its_field() {
    let checked = check(
        "
apiVersion: octavo.dev/v1
kind: HealthPolicy
metadata: {}
spec:
  mood: Act
  evict: perhaps
  budget: {remediesPercent: 500, evictionsPercent: many, spares: 3}
  breaker: 7
  remedies: [reboot, resetBus]
  xidClasses: {48: sometimes, 5: reset}
",
    )
    .unwrap();
    assert!(!checked.is_valid);
    let lines = checked.lines.join("\n");
    for words in [
        "apiVersion: it is \"octavo.dev/v1\", and must be octavo.dev/v1alpha1",
        "metadata.name: it is missing",
        "nodeSelector: it is missing",
        "mood: unknown field `mood`",
        "evict: invalid type",
        "budget.remediesPercent: it is 500, and must be from 0 to 100",
        "budget.evictionsPercent: invalid type",
        "budget.spares: unknown field `spares`",
        "breaker: invalid type",
        "remedies: each must be harsher",
        "xidClasses.48: unknown variant `sometimes`",
        "xidClasses.5: NVIDIA's catalogue says",
    ] {
        assert!(lines.contains(words), "wanted {words:?}:\n{lines}");
    }
    assert_eq!(checked.lines.len(), 12, "{lines}");
}

#[test]
fn empty_selectors_and_missing_specs_are_problems() {
    let of = |spec: &str| {
        let head = "{apiVersion: octavo.dev/v1alpha1, kind: HealthPolicy, metadata: {name: a}";
        check(&format!("{head}{spec}}}")).unwrap().lines
    };
    assert_eq!(of(""), ["HealthPolicy a: error: spec: it is missing"]);
    let lines = of(", spec: {nodeSelector: {}}");
    assert!(lines[0].contains("nodeSelector: it is empty"), "{lines:?}");
    let lines = of(", spec: {nodeSelector: {pool: 7}}");
    assert!(lines[0].contains("nodeSelector: invalid type"), "{lines:?}");
}

#[test]
fn other_objects_are_named_and_a_file_without_a_policy_is_not_valid() {
    let other = "{kind: ConfigMap, metadata: {name: a}}";
    let checked = check(&format!("{other}\n---\n{VALID}")).unwrap();
    assert!(checked.is_valid);
    assert_eq!(checked.lines[0], "ConfigMap a: not looked at");
    let checked = check(other).unwrap();
    assert!(!checked.is_valid);
    assert_eq!(checked.lines[1], "error: no object of kind HealthPolicy");
    let list = "kind: List\nitems:\n- {kind: ConfigMap, metadata: {name: a}}";
    assert_eq!(check(list).unwrap().lines[0], "ConfigMap a: not looked at");
    assert!(check("a: [").is_err());
}
