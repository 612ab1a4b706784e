//! What a command says while it works, and how it ended.

use std::io::{self, Write as _};

/// How a command ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstallStatus {
    /// All is done.
    Done,
    /// Something else has to be done first, or is not done yet. It was printed.
    Waits,
}

/// Writes a line to standard error, which may be closed.
pub(crate) fn report(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The first few of some names, and how many more there are.
pub(crate) fn few<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const SHOWN: usize = 5;
    let names: Vec<&str> = names.into_iter().collect();
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::few;

    #[test]
    fn a_few_names_are_shown() {
        assert_eq!(few(["a", "b"]), "a, b");
        assert_eq!(few(["a", "b", "c", "d", "e", "f", "g"]), "a, b, c, d, e and 2 more");
    }
}
