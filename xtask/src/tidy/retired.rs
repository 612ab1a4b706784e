//! Words that docs/glossary.md lists as *formerly*, refused in identifiers, file names and comments.

use std::path::Path;

use anyhow::bail;

use super::{Finding, SourceFile};

/// Parts of identifiers that have a standard term. Parts are split at `_` and at capitals.
const IDENTIFIER_PARTS: &str = "anew whoever whomever somebody nobody mind minds doubt doubts doubtful picture pictures \
    promise promises promised crowd crowds crew crews stage staged scene scenes rehearsal rehearse rehearsed amends truth \
    wall walls walled said told patience liaison porter heard sight";

/// Words of comments that have a standard term or hide the subject of a sentence.
const COMMENT_WORDS: &str = "anew whoever whomever whom somebody nobody mind minds doubt doubts doubtful picture pictures \
    promise promised promises crowd crew scene scenes rehearsal rehearse rehearsed amends truth wall walls walled patience";

/// Places that must name a retired word: they refuse or read the old name.
const ALLOWED: [(&str, &str); 4] = [
    ("crates/agent/src/args.rs", "wall"),
    ("crates/agent/src/checkpoint/tests.rs", "wall"),
    ("crates/agent/src/config.rs", "wall"),
    ("crates/agent/src/config/renamed_setting.rs", "wall"),
];

pub(super) fn check(_: &Path, files: &[SourceFile]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut looked_at = 0;
    for file in files.iter().filter(|file| file.has_extension(&["rs", "go"])) {
        // This file lists the words.
        if file.is_generated() || file.name().ends_with("tidy/retired.rs") {
            continue;
        }
        looked_at += 1;
        let mut complain = |line: usize, problem: String| {
            findings.push(Finding { place: format!("{}:{line}", file.name()), problem });
        };
        for part in file.path.iter().filter_map(|part| part.to_str()) {
            if let Some(word) = retired_part(part.split('.').next().unwrap_or(part)) {
                complain(1, format!("path has `{word}`: {REMEDY}"));
            }
        }
        for Token { line, kind, text } in tokens(&file.text) {
            let word = match kind {
                Kind::Comment => retired_word(text),
                Kind::Identifier => retired_part(text),
            };
            if let Some(word) = word
                && !ALLOWED.iter().any(|(path, allowed)| file.name() == *path && word == *allowed)
            {
                complain(line, format!("`{word}` in `{}`: {REMEDY}", text.trim()));
            }
        }
    }
    if looked_at == 0 {
        bail!("found no source files");
    }
    Ok(findings)
}

const REMEDY: &str = "docs/glossary.md has the field's term";

/// The first retired part of an identifier. `wall_clock` and `wall_time` are standard terms.
fn retired_part(identifier: &str) -> Option<String> {
    let parts = parts(identifier);
    parts.iter().enumerate().find_map(|(index, part)| {
        let clock = part == "wall"
            && parts.get(index + 1).is_some_and(|next| next == "clock" || next == "time");
        (!clock && IDENTIFIER_PARTS.split_whitespace().any(|word| word == part))
            .then(|| part.clone())
    })
}

/// `HTTPServer_name2` has the parts `http`, `server`, `name`, `2`.
fn parts(identifier: &str) -> Vec<String> {
    let letters: Vec<char> = identifier.chars().collect();
    let mut parts = vec![String::new()];
    for (index, letter) in letters.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| letters.get(before)).copied();
        let after = letters.get(index + 1).copied();
        let begins = before.is_some_and(|before| {
            letter.is_uppercase()
                && (before.is_lowercase() || after.is_some_and(char::is_lowercase))
                || letter.is_ascii_digit() != before.is_ascii_digit()
        });
        if begins || !letter.is_alphanumeric() {
            parts.push(String::new());
        }
        if letter.is_alphanumeric()
            && let Some(part) = parts.last_mut()
        {
            part.extend(letter.to_lowercase());
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The first retired word of a comment.
fn retired_word(comment: &str) -> Option<String> {
    let words: Vec<String> = comment
        .split(|letter: char| !letter.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    words.iter().enumerate().find_map(|(index, word)| {
        let clock = word == "wall"
            && words.get(index + 1).is_some_and(|next| next == "clock" || next == "time");
        (!clock && COMMENT_WORDS.split_whitespace().any(|retired| retired == word))
            .then(|| word.clone())
    })
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Comment,
    Identifier,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) line: usize,
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

/// Comments and identifiers of Rust or Go source. String and character literals are skipped.
pub(super) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (source, 1);
    while let Some(first) = rest.chars().next() {
        let (length, kind) = if rest.starts_with("//") {
            (rest.find('\n').unwrap_or(rest.len()), Some(Kind::Comment))
        } else if rest.starts_with("/*") {
            (rest.find("*/").map_or(rest.len(), |end| end + 2), Some(Kind::Comment))
        } else if let Some(length) = raw_string(rest) {
            (length, None)
        } else if first == '"' {
            (quoted(rest, '"'), None)
        } else if first == '\'' {
            (character(rest), None)
        } else if first.is_alphabetic() || first == '_' {
            let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
            (end.unwrap_or(rest.len()), Some(Kind::Identifier))
        } else {
            (first.len_utf8(), None)
        };
        let (text, after) = rest.split_at(length);
        if let Some(kind) = kind {
            tokens.push(Token { line, kind, text });
        }
        line += text.matches('\n').count();
        rest = after;
    }
    tokens
}

/// Length of a raw string at the start of `rest`: Rust's `r#"..."#` or Go's back quotes.
fn raw_string(rest: &str) -> Option<usize> {
    if let Some(after) = rest.strip_prefix('`') {
        return Some(after.find('`').map_or(rest.len(), |end| end + 2));
    }
    let after = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inside = after.get(hashes..)?.strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let opened = rest.len() - inside.len();
    Some(inside.find(&close).map_or(rest.len(), |end| opened + end + close.len()))
}

/// Length of a quoted literal at the start of `rest`, escapes respected.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, letter) in rest.char_indices().skip(1) {
        if !escaped && letter == quote {
            return index + 1;
        }
        escaped = !escaped && letter == '\\';
    }
    rest.len()
}

/// Length of a character literal at the start of `rest`, or of a lifetime's quote alone.
fn character(rest: &str) -> usize {
    let mut letters = rest.chars().skip(1);
    match (letters.next(), letters.next()) {
        (Some('\\'), _) => quoted(rest, '\''),
        (Some(letter), Some('\'')) => 2 + letter.len_utf8(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let file = SourceFile { path: "a/b.rs".into(), text: text.into() };
        check(Path::new(""), &[file]).unwrap().into_iter().map(|found| found.problem).collect()
    }

    #[test]
    fn retired_words_are_found_in_identifiers_and_comments() {
        assert_eq!(found("struct WallKind;").len(), 1);
        assert_eq!(found("let last_heard_at = 1; // nobody waits").len(), 2);
        assert_eq!(found("/* the picture\n of it */").len(), 1);
    }

    #[test]
    fn longer_words_strings_and_standard_terms_pass() {
        assert!(found("fn replay(wall_clock: u64, display: Stagecoach) {}").is_empty());
        assert!(
            found(r##"let a = ("the wall", r#"said "told" "#, '\'', 'x', "\" doubt");"##)
                .is_empty()
        );
        assert!(found("// by the wall clock, firewalls apart").is_empty());
    }

    #[test]
    fn identifiers_split_at_underscores_capitals_and_digits() {
        assert_eq!(parts("HTTPServer_name2"), ["http", "server", "name", "2"]);
        assert_eq!(parts("MAX_TOLD"), ["max", "told"]);
    }

    #[test]
    fn a_retired_word_in_a_path_is_found() {
        let file = SourceFile { path: "crates/a/src/wall/x.rs".into(), text: String::new() };
        assert_eq!(check(Path::new(""), &[file]).unwrap().len(), 1);
    }

    #[test]
    fn lines_are_counted_through_every_kind_of_token() {
        let source = "/* a\n */ \"b\n\" r#\"c\n\"# 'd' &'e f";
        let last = tokens(source).pop().unwrap();
        assert_eq!((last.line, last.text), (4, "f"));
    }
}
