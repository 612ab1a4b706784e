use super::pod_name;

fn name(words: &[&str]) -> Result<String, String> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    pod_name(&words).map(str::to_owned).map_err(|error| error.to_string())
}

#[test]
fn a_pod_is_named_in_both_of_kubectls_ways() {
    assert_eq!(name(&["pod", "train"]).unwrap(), "train");
    assert_eq!(name(&["po/train"]).unwrap(), "train");
    assert_eq!(name(&["pods/train"]).unwrap(), "train");
}

#[test]
fn what_is_no_pod_is_refused() {
    assert_eq!(name(&["train"]).unwrap_err(), "\"train\" is nothing that can be explained");
    assert_eq!(name(&["claim/a"]).unwrap_err(), "\"claim\" is nothing that can be explained");
    assert_eq!(name(&["pod"]).unwrap_err(), "the name of the pod is missing");
    assert_eq!(name(&["pod/"]).unwrap_err(), "the name of the pod is missing");
    assert_eq!(name(&["pod", "a/b"]).unwrap_err(), "the name of the pod is missing");
}
