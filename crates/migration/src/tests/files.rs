use serde_json::Value;

use super::fixtures::options;
use crate::{Models, Options, translate_manifests};

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  # a comment inside
  containers:
  - name: main
    args: [\"yes\", \"012\"]
    resources: {limits: {nvidia.com/gpumem: 1000}}
  volumes:
  - name: v
    secret: {defaultMode: 0644, optional: no}
";

fn translated(text: &str) -> String {
    translate_manifests(text, &options()).unwrap().text
}

fn values(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[test]
fn documents_without_a_change_keep_their_text() {
    let text = "# licence\n---\na:   1 # kept\n---\n\nkind: Pod # nvidia.com/nothing\n...\n";
    assert_eq!(translated(text), text);
    for text in ["", "\n", "# only\n", "a: [\n", "{\"kind\": \"Pod\"}"] {
        assert_eq!(translated(text), text);
    }
}

#[test]
fn a_changed_document_follows_its_template() {
    let text =
        format!("# licence\nkind: ConfigMap # kept\n---\n# of the pod\n{POD}---\nkind: Service\n");
    let output = translated(&text);
    assert!(
        output.starts_with("# licence\nkind: ConfigMap # kept\n---\n# of the pod\n"),
        "{output}"
    );
    assert!(output.ends_with("---\nkind: Service\n"), "{output}");
    let values = values(&output);
    let kinds: Vec<_> = values.iter().map(|value| value["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ConfigMap", "ResourceClaimTemplate", "Pod", "Service"]);
    let pod = &values[2];
    assert_eq!(pod["spec"]["volumes"][0]["secret"]["defaultMode"], 0o644);
    assert_eq!(pod["spec"]["volumes"][0]["secret"]["optional"], false);
    assert_eq!(pod["spec"]["containers"][0]["args"], serde_json::json!(["yes", "012"]));
    assert_eq!(translated(&output), output, "a translation has nothing to translate");
}

#[test]
fn a_first_document_needs_no_separator() {
    let output = translated(POD);
    assert!(output.starts_with("apiVersion: resource.k8s.io/v1\n"), "{output}");
    let twice = translated(&format!("{POD}---\n{POD}"));
    assert_eq!(values(&twice).len(), 3, "an equal template is written once");
    let flow =
        translated("--- {kind: Pod, apiVersion: v1, spec: {schedulerName: hami-scheduler}}\n");
    assert_eq!(values(&flow).len(), 1, "{flow}");
}

#[test]
fn json_stays_json() {
    let pod = &values(POD)[0];
    let output = translated(&pod.to_string());
    let list: Value = serde_json::from_str(&output).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"][0]["kind"], "ResourceClaimTemplate");
    let scheduler = r#"{"apiVersion":"v1","kind":"Pod","spec":{"schedulerName":"hami-scheduler"}}"#;
    let output: Value = serde_json::from_str(&translated(scheduler)).unwrap();
    assert_eq!(output["kind"], "Pod");
}

#[test]
fn what_is_refused_stays_as_it_was() {
    let text = POD.replace("1000", "x");
    let found = translate_manifests(&text, &options()).unwrap();
    assert!(found.has_refusals());
    assert_eq!(found.text, text);
    assert_eq!(found.entries[0].object, "Pod train");
}

#[test]
fn a_broken_document_is_named() {
    let error = translate_manifests("a: 1\n---\nnvidia.com/gpu: [\n", &options()).unwrap_err();
    assert_eq!((error.document, error.line), (2, 2));
    assert!(error.to_string().contains("document 2, which begins in line 2"), "{error}");
}

#[test]
fn the_examples_of_the_page_are_what_it_does() {
    let page = include_str!("../../../../docs/migration.md");
    let blocks = page.split("```yaml\n").skip(1).map(|block| block.split("```").next().unwrap());
    let blocks: Vec<&str> = blocks.collect();
    let [before_hami, after_hami, models, before_kai, after_kai] = blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    let options = Options { models: Models::parse(models).unwrap(), ..Options::default() };
    for (before, after) in [(before_hami, after_hami), (before_kai, after_kai)] {
        let mut found = values(&translate_manifests(before, &options).unwrap().text);
        let name = found[0]["metadata"]["name"].as_str().unwrap().to_owned();
        let digest = name.rsplit('-').next().unwrap();
        for document in &mut found {
            *document =
                serde_json::from_str(&document.to_string().replace(digest, "DIGEST")).unwrap();
            // Written without the fields that became empty.
            if document["metadata"]["annotations"].is_null() {
                document["metadata"].as_object_mut().unwrap().remove("annotations");
            }
        }
        assert_eq!(found, values(after));
    }
}
