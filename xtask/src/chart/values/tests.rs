use super::{Setting, parse};

fn setting(key: &str, default: &str, text: &str) -> Setting {
    Setting { key: key.to_owned(), default: default.to_owned(), text: text.to_owned() }
}

#[test]
fn values_are_read_with_their_comments_and_paths() {
    let values = "\
# A remark on the file.

# -- Its name.
name: \"\"
image:
  # -- Where it lies,
  # and how it is named.
  tag: \"a: b\"
  deep:
    # -- On or off.
    on: false
";
    assert_eq!(
        parse(values).unwrap(),
        [
            setting("name", "\"\"", "Its name."),
            setting("image.tag", "\"a: b\"", "Where it lies, and how it is named."),
            setting("image.deep.on", "false", "On or off."),
        ]
    );
}

#[test]
fn a_default_of_several_lines_belongs_to_its_value() {
    let values =
        "a:\n  # -- Tolerations.\n  tolerations:\n    - {key: x}\n  # -- Next.\n  next: 1\n";
    assert_eq!(
        parse(values).unwrap(),
        [setting("a.tolerations", "", "Tolerations."), setting("a.next", "1", "Next.")]
    );
}

#[test]
fn a_value_without_a_comment_is_named() {
    let fault = parse("# -- Explained.\na: 1\nb:\n  c: 2\n").unwrap_err().to_string();
    assert_eq!(fault, "values.yaml:4: `b.c` is not explained; put a `# -- ` comment above it");
}

#[test]
fn a_file_that_explains_nothing_is_an_error() {
    assert!(parse("# nothing\n").is_err());
}
