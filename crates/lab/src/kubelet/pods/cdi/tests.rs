use std::path::Path;

use super::*;

const NODE: &str = r#"
cdiVersion: "0.7.0"
kind: k8s.gpu.nvidia.com/claim
containerEdits:
  env: ["NVIDIA_VISIBLE_DEVICES=void", "SHARED=1"]
  mounts:
    - {hostPath: /run/lib.so, containerPath: /usr/lib/lib.so, options: [ro, nosuid]}
  hooks:
    - {hookName: createContainer, path: /opt/octavo, args: [octavo, cdi-hook]}
devices:
  - name: uid-gpu-0
    containerEdits:
      env: ["GPU=0"]
      deviceNodes: [{path: /dev/nvidia0, hostPath: /sim/dev/nvidia0}]
      additionalGids: [44]
  - name: uid-gpu-1
    containerEdits:
      env: ["GPU=1"]
      deviceNodes: [{path: /dev/nvidia1}, {path: /dev/nvidia0}]
"#;

fn catalogue(texts: &[(&str, &str)]) -> Catalogue {
    Catalogue::parse(texts.iter().map(|(path, text)| (Path::new(*path), *text)))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn edits_of_a_spec_are_applied_once_and_those_of_its_devices_in_order() {
    let id = |n: u32| format!("k8s.gpu.nvidia.com/claim=uid-gpu-{n}");
    let edits = catalogue(&[("a.yaml", NODE)]).resolve(&[id(0), id(1), id(0)]).unwrap();
    assert_eq!(edits.env, ["NVIDIA_VISIBLE_DEVICES=void", "SHARED=1", "GPU=1"]);
    assert_eq!(edits.hooks.len(), 1);
    assert_eq!(edits.mounts.len(), 1);
    let paths: Vec<_> = edits.device_nodes.iter().map(|node| node.path.as_str()).collect();
    assert_eq!(paths, ["/dev/nvidia0", "/dev/nvidia1"]);
    assert_eq!(edits.device_nodes[0].host_path, None, "the later node replaces the earlier one");
    assert_eq!(edits.additional_gids, [44]);
}

#[test]
fn a_name_that_no_spec_defines_is_unresolvable_and_named() {
    let error = catalogue(&[("a.yaml", NODE)])
        .resolve(&names(&["k8s.gpu.nvidia.com/claim=gone"]))
        .unwrap_err();
    assert_eq!(error.names, ["k8s.gpu.nvidia.com/claim=gone"]);
    assert!(error.to_string().contains("unresolvable CDI devices k8s.gpu.nvidia.com/claim=gone"));
}

#[test]
fn a_device_of_two_specs_is_a_conflict_and_resolves_to_neither() {
    let twice = catalogue(&[("a.yaml", NODE), ("b.yaml", NODE)]);
    let error = twice.resolve(&names(&["k8s.gpu.nvidia.com/claim=uid-gpu-0"])).unwrap_err();
    assert!(error.to_string().contains("more than one spec"), "{error}");
}

#[test]
fn spec_with_unknown_fields_or_a_low_version_is_unusable() {
    let unknown = NODE.replace("kind:", "colour: red\nkind:");
    let old = NODE.replace("0.7.0", "0.6.0");
    for (text, word) in [(unknown, "colour"), (old, "additionalGids needs cdiVersion 0.7.0")] {
        let catalogue = catalogue(&[("a.yaml", &text)]);
        assert!(catalogue.resolve(&names(&["k8s.gpu.nvidia.com/claim=uid-gpu-1"])).is_err());
        assert!(catalogue.problems[0].contains(word), "{:?}", catalogue.problems);
    }
}

#[test]
fn json_specs_are_read_and_hidden_or_half_written_files_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let json = r#"{"cdiVersion":"0.6.0","kind":"a.b/c","devices":[{"name":"d","containerEdits":{"env":["X=1"]}}]}"#;
    std::fs::write(folder.path().join("a.json"), json).unwrap();
    std::fs::write(folder.path().join(".hidden.yaml"), NODE).unwrap();
    std::fs::write(folder.path().join("b.yaml.tmp"), NODE).unwrap();
    let catalogue = Catalogue::read(folder.path()).unwrap();
    assert_eq!(catalogue.resolve(&names(&["a.b/c=d"])).unwrap().env, ["X=1"]);
    assert!(catalogue.problems.is_empty());
    assert!(Catalogue::read(&folder.path().join("missing")).unwrap().problems.is_empty());
}
