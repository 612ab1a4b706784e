use std::ffi::OsStr;
use std::fs;
use std::path::Path;

use super::markdown;
use crate::cli::command;

fn reference() -> String {
    markdown(command(OsStr::new("octavo")))
}

#[test]
fn commands_options_and_defaults_are_listed() {
    let text = reference();
    assert!(text.contains("\n## octavo top\n"));
    assert!(text.contains("| `-o, --output FORM` | Output format; one of `table`, `wide`, "));
    assert!(text.contains("; default `table`"));
    assert!(!text.contains("cdi-hook"), "hidden commands are not for people");
}

#[test]
fn the_reference_in_the_repository_is_the_one_of_this_binary() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == reference(),
        "{} is not what `octavo generate cli-reference` writes: write it again",
        path.display()
    );
}
