use std::path::Path;

use super::{SourceFile, dependencies, files, links, words};

fn source(path: &str, text: &str) -> Vec<SourceFile> {
    vec![SourceFile { path: path.into(), text: text.into() }]
}

#[test]
fn a_file_over_the_limit_is_named() {
    let found = files::check(Path::new(""), &source("a/b.rs", &"x\n".repeat(501))).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].problem.contains("501 lines"));
}

#[test]
fn vague_names_and_unfinished_marks_are_named() {
    let text = format!("fn f() {{ {}() }}", concat!("todo", "!("));
    let found = files::check(Path::new(""), &source("a/utils.rs", &text)).unwrap();
    assert_eq!(found.len(), 2);
}

#[test]
fn a_machine_path_is_named_with_its_line() {
    let text = format!("fine\nsee {}x\n", concat!("/wo", "rk/"));
    let found = words::check(Path::new(""), &source("README.md", &text)).unwrap();
    assert_eq!(found[0].place, "README.md:2");
}

#[test]
fn only_paths_count_as_links() {
    let text = "[a](https://example.com) [b](docs/x.md#part) [c](#here)";
    assert_eq!(links::targets(text), ["docs/x.md"]);
}

#[test]
fn names_are_read_from_manifest_and_page() {
    let manifest =
        "[workspace]\n[workspace.dependencies]\n# why\nserde = \"1\"\n[profile.dev]\nx = 1\n";
    assert_eq!(dependencies::workspace_dependencies(manifest), ["serde"]);
    assert_eq!(dependencies::explained("| kube, k8s | client |"), ["kube", "k8s"]);
}
