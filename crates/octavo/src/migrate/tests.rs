use std::fs;
use std::path::Path;

use clap::Parser;

use super::manifests::shipped_models;
use super::{ManifestsArgs, run_manifests};

const POD: &str = "apiVersion: v1
kind: Pod
metadata: {name: train, annotations: {gpu-fraction: \"0.5\"}}
spec: {schedulerName: kai-scheduler, containers: [{name: main}]}
";
const REFUSED: &str = "apiVersion: v1
kind: Pod
metadata: {name: wrong, annotations: {gpu-fraction: \"1.5\"}}
spec: {containers: [{name: main}]}
";

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: ManifestsArgs,
}

/// Runs the command. Returns whether all is translated, standard output and standard error.
fn run(folder: &Path, arguments: &[&str]) -> anyhow::Result<(bool, String, String)> {
    let path = |argument: &&str| match argument.strip_prefix("@") {
        Some(name) => folder.join(name).into_os_string(),
        None => argument.into(),
    };
    let line = std::iter::once("manifests".into()).chain(arguments.iter().map(path));
    let args = Command::parse_from(line).args;
    let (mut out, mut log) = (Vec::new(), Vec::new());
    let is_whole = run_manifests(&args, &mut out, &mut log)?;
    Ok((is_whole, String::from_utf8(out).unwrap(), String::from_utf8(log).unwrap()))
}

#[test]
fn files_are_written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("pod.yaml"), POD).unwrap();
    fs::write(at("wrong.yaml"), REFUSED).unwrap();
    let files = ["@pod.yaml", "@wrong.yaml", "--output", "@out"];
    let (is_whole, out, log) = run(folder.path(), &files).unwrap();
    assert!(!is_whole && out.is_empty() && !at("out").exists());
    assert!(log.contains("wrong.yaml: Pod wrong: error: annotation gpu-fraction: 1.5"), "{log}");
    assert!(log.contains("(OutOfRange)"), "{log}");
    let (is_whole, ..) = run(folder.path(), &[&files[..], &["--keep-going"]].concat()).unwrap();
    assert!(!is_whole, "something is refused");
    assert_eq!(fs::read_to_string(at("out/wrong.yaml")).unwrap(), REFUSED);
    assert!(fs::read_to_string(at("out/pod.yaml")).unwrap().contains("ResourceClaimTemplate"));
}

#[test]
fn files_are_joined_on_standard_output() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("one.yaml"), "kind: A").unwrap();
    fs::write(folder.path().join("two.yaml"), "---\nkind: B\n").unwrap();
    fs::write(folder.path().join("pod.yaml"), POD).unwrap();
    let (is_whole, out, log) = run(folder.path(), &["@one.yaml", "@two.yaml"]).unwrap();
    assert_eq!((is_whole, out.as_str(), log.as_str()), (true, "kind: A\n---\nkind: B\n", ""));
    let (is_whole, out, log) =
        run(folder.path(), &["--scheduler-name", "octavo", "@one.yaml", "@pod.yaml"]).unwrap();
    assert!(is_whole && out.contains("schedulerName: octavo"), "{out}");
    assert!(
        log.contains("pod.yaml: Pod train: spec.schedulerName: kai-scheduler -> octavo"),
        "{log}"
    );
}

#[test]
fn originals_are_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("pod.yaml"), POD).unwrap();
    let error = run(folder.path(), &["@pod.yaml", "--output", "@"]).unwrap_err().to_string();
    assert!(error.contains("would be replaced"), "{error}");
    fs::create_dir(at("other")).unwrap();
    fs::write(at("other/pod.yaml"), POD).unwrap();
    let both = ["@pod.yaml", "@other/pod.yaml", "--output", "@out"];
    let error = run(folder.path(), &both).unwrap_err().to_string();
    assert!(error.contains("would both be written"), "{error}");
    assert_eq!(fs::read_to_string(at("pod.yaml")).unwrap(), POD);
}

#[test]
fn models_come_from_a_file_or_from_the_machines_that_ship() {
    let shipped = shipped_models().unwrap();
    let names: Vec<&str> =
        shipped.as_slice().iter().map(|model| model.product_name.as_str()).collect();
    assert_eq!((names.len(), names[0]), (8, "Tesla T4"), "{names:?}");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pod.yaml"), POD).unwrap();
    fs::write(folder.path().join("models.yaml"), "[{productName: GPU X, memory: 1000Mi}]").unwrap();
    let (_, out, _) = run(folder.path(), &["--models", "@models.yaml", "@pod.yaml"]).unwrap();
    assert!(out.contains("memory: 500Mi") && out.contains("GPU X"), "{out}");
    fs::write(folder.path().join("models.yaml"), "[{productName: GPU X}]").unwrap();
    let error = run(folder.path(), &["--models", "@models.yaml", "@pod.yaml"]).unwrap_err();
    assert!(format!("{error:#}").contains("models.yaml: the list of GPU models"), "{error:#}");
}
