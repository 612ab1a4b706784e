use super::{check, objects};

const LABELS: &str = "labels: {app.kubernetes.io/part-of: octavo}";

fn role(rule: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ClusterRole\nmetadata: {{name: a, {LABELS}}}\nrules:\n- {rule}\n"
    )
}

fn fault(rendered: &str) -> String {
    format!("{:#}", check(&objects(rendered).unwrap()).unwrap_err())
}

#[test]
fn rights_that_are_spelt_out_pass() {
    let rendered = role("{apiGroups: [apps], resources: [daemonsets], verbs: [get]}");
    check(&objects(&rendered).unwrap()).unwrap();
}

#[test]
fn a_star_among_rights_is_found_in_every_field() {
    for rule in [
        "{apiGroups: ['*'], resources: [pods], verbs: [get]}",
        "{apiGroups: [''], resources: ['pods/*'], verbs: [get]}",
        "{apiGroups: [''], resources: [pods], verbs: ['*']}",
        "{nonResourceURLs: ['/metrics/*'], verbs: [get]}",
    ] {
        assert!(fault(&role(rule)).contains("without stars"), "{rule}");
    }
}

#[test]
fn an_object_that_is_rendered_twice_is_named() {
    let one =
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: a, namespace: ns, {LABELS}}}\n");
    assert_eq!(fault(&format!("{one}---\n{one}")), "Secret ns/a is rendered twice");
}

#[test]
fn documents_of_comments_alone_are_no_objects() {
    assert!(objects("---\n# Source: nothing\n---\n").unwrap().is_empty());
}

#[test]
fn an_object_without_a_name_or_labels_is_refused() {
    assert!(fault("apiVersion: v1\nkind: Secret\nmetadata: {}\n").contains("/metadata/name"));
    assert!(fault("apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n").contains("labels"));
}
