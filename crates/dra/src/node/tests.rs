use super::*;

fn node() -> Node {
    let labels = [("zone", "a"), ("gpus", "8")];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Node { name: "n1".to_owned(), labels: labels.into() }
}

fn requirement(key: &str, operator: NodeOperator, values: &[&str]) -> NodeRequirement {
    let values = values.iter().map(|&value| value.to_owned()).collect();
    NodeRequirement { key: key.to_owned(), operator, values }
}

fn by_label(key: &str, operator: NodeOperator, values: &[&str]) -> NodeSelector {
    let labels = vec![requirement(key, operator, values)];
    NodeSelector { terms: vec![NodeSelectorTerm { labels, fields: Vec::new() }] }
}

fn by_field(key: &str, operator: NodeOperator, values: &[&str]) -> NodeSelector {
    let fields = vec![requirement(key, operator, values)];
    NodeSelector { terms: vec![NodeSelectorTerm { labels: Vec::new(), fields }] }
}

#[test]
fn operators_compare_labels() {
    use NodeOperator::{DoesNotExist, Exists, Gt, In, Lt, NotIn};
    for (key, operator, values, expected) in [
        ("zone", In, &["b", "a"][..], true),
        ("zone", In, &["b"], false),
        ("rack", In, &["b"], false),
        ("zone", NotIn, &["b"], true),
        ("zone", NotIn, &["a"], false),
        ("rack", NotIn, &["b"], true),
        ("zone", Exists, &[], true),
        ("rack", Exists, &[], false),
        ("zone", DoesNotExist, &[], false),
        ("rack", DoesNotExist, &[], true),
        ("gpus", Gt, &["7"], true),
        ("gpus", Gt, &["8"], false),
        ("gpus", Lt, &["9"], true),
        ("zone", Lt, &["9"], false),
        ("rack", Gt, &["1"], false),
    ] {
        let is_match = by_label(key, operator, values).matches(&node());
        assert_eq!(is_match, Ok(expected), "{key} {operator:?} {values:?}");
    }
}

#[test]
fn the_name_is_a_field() {
    assert_eq!(by_field("metadata.name", NodeOperator::In, &["n1"]).matches(&node()), Ok(true));
    assert_eq!(by_field("metadata.name", NodeOperator::NotIn, &["n1"]).matches(&node()), Ok(false));
    assert_eq!(by_field("spec.other", NodeOperator::In, &["n1"]).matches(&node()), Ok(false));
}

#[test]
fn nothing_selects_nothing() {
    assert_eq!(NodeSelector::default().matches(&node()), Ok(false));
    let empty_term = NodeSelector { terms: vec![NodeSelectorTerm::default()] };
    assert_eq!(empty_term.matches(&node()), Ok(false));
}

#[test]
fn any_term_is_enough_but_all_its_requirements_are_needed() {
    let mut selector = by_label("zone", NodeOperator::In, &["b"]);
    selector.terms.extend(by_label("zone", NodeOperator::In, &["a"]).terms);
    assert_eq!(selector.matches(&node()), Ok(true));
    selector.terms[1].fields = vec![requirement("metadata.name", NodeOperator::In, &["n2"])];
    assert_eq!(selector.matches(&node()), Ok(false));
}

#[test]
fn unsound_requirements_are_errors() {
    for selector in [
        by_label("zone", NodeOperator::In, &[]),
        by_label("zone", NodeOperator::Exists, &["a"]),
        by_label("gpus", NodeOperator::Gt, &["many"]),
        by_label("gpus", NodeOperator::Lt, &["1", "2"]),
        by_field("metadata.name", NodeOperator::In, &["n1", "n2"]),
        by_field("metadata.name", NodeOperator::Exists, &[]),
    ] {
        assert!(selector.matches(&node()).is_err(), "{selector:?}");
    }
}
