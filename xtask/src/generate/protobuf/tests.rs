use std::path::{Path, PathBuf};
use std::{env, fs};

use super::{PROTOS, stems};

/// Every field and method of a .proto file as one line each, sorted, without comments, options and
/// the package's name: what goes over the wire.
fn wire_facts(folder: &Path, file: &str) -> (String, Vec<String>) {
    let descriptors = protox::compile([file], [folder]).unwrap();
    let descriptor = &descriptors.file[0];
    let package = descriptor.package().to_owned();
    let local = |name: &str| name.trim_start_matches(&format!(".{package}.")).to_owned();
    let mut facts = Vec::new();
    let mut messages: Vec<_> = descriptor
        .message_type
        .iter()
        .map(|message| (message.name().to_owned(), message))
        .collect();
    while let Some((name, message)) = messages.pop() {
        facts.push(format!("message {name}"));
        for field in &message.field {
            facts.push(format!(
                "{name}.{} = {} {:?} {:?} {} optional={}",
                field.name(),
                field.number(),
                field.label(),
                field.r#type(),
                local(field.type_name()),
                field.proto3_optional()
            ));
        }
        for nested in &message.nested_type {
            messages.push((format!("{name}.{}", nested.name()), nested));
        }
    }
    for values in &descriptor.enum_type {
        for value in &values.value {
            facts.push(format!("{}.{} = {}", values.name(), value.name(), value.number()));
        }
    }
    for service in &descriptor.service {
        for method in &service.method {
            facts.push(format!(
                "{}/{} {} -> {} stream={}",
                service.name(),
                method.name(),
                local(method.input_type()),
                local(method.output_type()),
                method.server_streaming()
            ));
        }
    }
    facts.sort();
    (package, facts)
}

fn ours(stem: &str) -> (String, Vec<String>) {
    wire_facts(&super::super::root().unwrap().join(PROTOS), &format!("{stem}.proto"))
}

/// Folder of the kubelet module in Go's module cache, newest first; the lab's build fetches it.
fn kubelet_module() -> Option<PathBuf> {
    let cache = env::var_os("GOMODCACHE").map(PathBuf::from).or_else(|| {
        let go = env::var_os("GOPATH").map(PathBuf::from);
        Some(go.or_else(|| Some(Path::new(&env::var_os("HOME")?).join("go")))?.join("pkg/mod"))
    })?;
    let mut found: Vec<_> = fs::read_dir(cache.join("k8s.io"))
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| {
            path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("kubelet@"))
        })
        .collect();
    found.sort();
    found.pop().map(|module| module.join("pkg/apis"))
}

#[test]
fn packages_and_services_have_the_names_that_the_kubelet_calls() {
    let expected = [
        ("deviceplugin_v1beta1", "v1beta1", "DevicePlugin/Allocate"),
        ("dra_health_v1", "v1", "DRAResourceHealth/NodeWatchResources"),
        ("dra_health_v1alpha1", "v1alpha1", "DRAResourceHealth/NodeWatchResources"),
        ("dra_v1", "k8s.io.kubelet.pkg.apis.dra.v1", "DRAPlugin/NodePrepareResources"),
        ("dra_v1beta1", "k8s.io.kubelet.pkg.apis.dra.v1beta1", "DRAPlugin/NodePrepareResources"),
        ("pluginregistration_v1", "pluginregistration", "Registration/GetInfo"),
        ("podresources_v1", "v1", "PodResourcesLister/List"),
    ];
    let root = super::super::root().unwrap();
    assert_eq!(stems(&root.join(PROTOS)).unwrap(), expected.map(|(stem, ..)| stem.to_owned()));
    for (stem, package, method) in expected {
        let (found, facts) = ours(stem);
        assert_eq!(found, package);
        assert!(facts.iter().any(|fact| fact.starts_with(method)), "{method} in {facts:#?}");
    }
}

#[test]
fn versions_differ_only_where_the_kubelet_says_so() {
    let share = "Device.share_id = 5 Optional String  optional=true";
    let (_, mut v1) = ours("dra_v1");
    let (_, v1beta1) = ours("dra_v1beta1");
    let position = v1.iter().position(|fact| fact == share).unwrap();
    v1.remove(position);
    assert_eq!(v1, v1beta1);
    assert_eq!(ours("dra_health_v1").1, ours("dra_health_v1alpha1").1);
}

#[test]
fn numbers_and_types_are_those_of_the_go_module_wherever_it_is_on_this_machine() {
    // The comparison needs the module that the lab's Go build fetches; the other tests of this
    // file pin the same facts without it.
    for (stem, theirs) in [
        ("pluginregistration_v1", "pluginregistration/v1"),
        ("dra_v1", "dra/v1"),
        ("dra_v1beta1", "dra/v1beta1"),
        ("dra_health_v1alpha1", "dra-health/v1alpha1"),
    ] {
        let Some(folder) = kubelet_module().map(|module| module.join(theirs)) else { continue };
        assert!(folder.join("api.proto").is_file(), "{} has no api.proto", folder.display());
        assert_eq!(ours(stem), wire_facts(&folder, "api.proto"), "{stem}");
    }
}
