//! Sentences of the docs are short.

use std::path::Path;

use anyhow::bail;

use super::{Finding, SourceFile};

/// A sentence with more words is refused. CONTRIBUTING asks for 25.
const MAX_WORDS: usize = 30;

pub(super) fn check(_: &Path, files: &[SourceFile]) -> anyhow::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut looked_at = 0;
    for file in files.iter().filter(|file| file.has_extension(&["md"])) {
        looked_at += 1;
        for (line, paragraph) in paragraphs(&file.text) {
            for sentence in sentences(&paragraph.replace('*', "")) {
                let words = words(sentence);
                if words > MAX_WORDS {
                    findings.push(Finding {
                        place: format!("{}:{line}", file.name()),
                        problem: format!(
                            "a sentence of {words} words, more than {MAX_WORDS}: {sentence}"
                        ),
                    });
                }
            }
        }
    }
    if looked_at == 0 {
        bail!("found no page of the docs");
    }
    Ok(findings)
}

/// Paragraphs and list items of a Markdown page with their first line. Code blocks, headings and tables are left out.
fn paragraphs(page: &str) -> Vec<(usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let (mut in_code, mut open) = (false, false);
    for (index, line) in page.lines().enumerate() {
        let text = line.trim();
        if text.starts_with("```") {
            in_code = !in_code;
            open = false;
        } else if in_code || text.is_empty() || text.starts_with(['#', '|', '<']) {
            open = false;
        } else if let Some(item) = list_item(text) {
            paragraphs.push((index + 1, item.to_owned()));
            open = true;
        } else if open && let Some((_, paragraph)) = paragraphs.last_mut() {
            paragraph.push(' ');
            paragraph.push_str(text);
        } else {
            paragraphs.push((index + 1, text.to_owned()));
            open = true;
        }
    }
    paragraphs
}

fn list_item(line: &str) -> Option<&str> {
    line.strip_prefix("- ").or_else(|| line.strip_prefix("* ")).or_else(|| {
        let (number, text) = line.split_once(". ")?;
        number.parse::<u32>().is_ok().then_some(text)
    })
}

/// A sentence ends at `.`, `!`, `?`, `:` or `;` before white space.
fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    let mut rest = paragraph;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        if rest.is_empty() {
            return None;
        }
        let end = rest
            .match_indices(['.', '!', '?', ':', ';'])
            .map(|(index, _)| index + 1)
            .find(|end| rest.get(*end..).is_some_and(|after| after.starts_with(' ')));
        let (sentence, after) = rest.split_at(end.unwrap_or(rest.len()));
        rest = after;
        Some(sentence)
    })
}

fn words(sentence: &str) -> usize {
    sentence.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Finding> {
        check(Path::new(""), &[SourceFile { path: "a.md".into(), text: text.into() }]).unwrap()
    }

    #[test]
    fn a_long_sentence_is_named_with_the_line_of_its_paragraph() {
        let long = "word ".repeat(31);
        assert_eq!(found(&format!("# Title\n\nShort one.\n\n{long}\n"))[0].place, "a.md:5");
        assert!(found(&"word ".repeat(30)).is_empty());
    }

    #[test]
    fn sentences_list_items_code_and_tables_are_distinguished() {
        let twenty = "word ".repeat(20);
        assert_eq!(found(&format!("{twenty}\n{twenty}\n\n{twenty}\n")).len(), 1);
        assert!(found(&format!("- {twenty}\n- {twenty}\n1. {twenty}\n")).is_empty());
        assert!(found(&format!("```\n{twenty}{twenty}\n```\n| {twenty}{twenty} |\n")).is_empty());
        assert!(found(&format!("{}. Next {}", twenty.trim(), twenty.trim())).is_empty());
    }
}
