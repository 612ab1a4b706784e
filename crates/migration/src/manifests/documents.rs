//! The documents of a YAML file, as text.

/// A document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Document<'a> {
    /// All of it, from its separator on.
    pub(super) text: &'a str,
    /// Its separator, and the comments and empty lines before its content.
    pub(super) head: &'a str,
    /// Its content.
    pub(super) body: &'a str,
    /// Number of its first line, from 1.
    pub(super) line: usize,
}

/// Divides a file at lines that begin with `---`. YAML allows such a line within no text, quoted or not.
pub(super) fn documents(text: &str) -> Vec<Document<'_>> {
    let mut starts = vec![(0, 1)];
    let mut offset = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if offset > 0 && is_separator(line) {
            starts.push((offset, index + 1));
        }
        offset += line.len();
    }
    let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([text.len()]);
    let parts = starts.iter().zip(ends);
    parts
        .map(|((start, line), end)| document(text.get(*start..end).unwrap_or_default(), *line))
        .collect()
}

fn document(text: &str, line: usize) -> Document<'_> {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        let content = line.strip_prefix("---").filter(|_| length == 0 && is_separator(line));
        let content = content.unwrap_or(line).trim();
        let is_head = content.is_empty() || content.starts_with('#');
        if !is_head {
            break;
        }
        length += line.len();
    }
    let (head, body) = text.split_at(length);
    Document { text, head, body, line }
}

fn is_separator(line: &str) -> bool {
    line.strip_prefix("---")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(char::is_whitespace))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_divided_at_separators() {
        let text = "# licence\na: 1\n---\n# second\nb: |\n  ---\n  x\n--- {c: 3}\n---\n";
        let found = documents(text);
        let parts: Vec<_> =
            found.iter().map(|found| (found.head, found.body, found.line)).collect();
        assert_eq!(
            parts,
            [
                ("# licence\n", "a: 1\n", 1),
                ("---\n# second\n", "b: |\n  ---\n  x\n", 3),
                ("", "--- {c: 3}\n", 8),
                ("---\n", "", 9),
            ]
        );
        assert_eq!(found.iter().map(|found| found.text).collect::<String>(), text);
    }

    #[test]
    fn an_empty_file_has_an_empty_document() {
        assert_eq!(documents(""), [Document { text: "", head: "", body: "", line: 1 }]);
        assert_eq!(documents("----\n").len(), 1);
    }
}
