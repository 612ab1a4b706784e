use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::Refusal;

/// Words that stand where reasons do in the sources, but are values and causes of other kinds.
const OTHER_WORDS: [&str; 13] = [
    "Constraint",
    "DisruptionBudget",
    "False",
    "Forbidden",
    "Normal",
    "Offer",
    "Request",
    "ServiceUnavailable",
    "Spares",
    "Taken",
    "True",
    "Unknown",
    "Warning",
];

fn catalogue() -> BTreeSet<&'static str> {
    SECTIONS.iter().flat_map(|section| section.reasons).map(|found| found.reason).collect()
}

/// The programs that write reasons, without their tests.
fn sources() -> Vec<String> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            if name == "tests" || name == "testing" {
                continue;
            }
            if path.is_dir() {
                collect(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for program in ["agent", "controller", "enforcement", "scheduler"] {
        collect(&crates.join(program).join("src"), &mut files);
    }
    let own = |text: String| text.split("#[cfg(test)]\nmod tests {").next().unwrap().to_owned();
    files.iter().map(|path| own(fs::read_to_string(path).unwrap())).collect()
}

/// String literals of a line that are CamelCase words.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split('"').skip(1).step_by(2).filter(|word| {
        let is_name = word.chars().all(|letter| letter.is_ascii_alphabetic());
        let mut letters = word.chars();
        is_name
            && letters.next().is_some_and(|first| first.is_ascii_uppercase())
            && letters.next().is_some_and(|second| second.is_ascii_lowercase())
    })
}

/// The words of a source that stand where reasons do.
fn reasons_in(source: &str) -> BTreeSet<String> {
    let (mut found, mut is_in_list, mut previous) = (BTreeSet::new(), false, "");
    for line in source.lines() {
        is_in_list |=
            ["fn reason(", "fn as_str(", "fn failure_name("].iter().any(|name| line.contains(name));
        let has_mark = ["reason", "EventType::", "CONDITION_", "error.to_string()", "pod_event("]
            .iter()
            .any(|mark| line.contains(mark));
        let follows_mark = previous.ends_with("note(") || previous.contains("Status::");
        let is_event = line.contains("EventType::");
        // Without the type of event, the line names only its action.
        let is_action = line.contains(".record(") && !is_event;
        if (is_in_list || has_mark || follows_mark) && !is_action {
            let limit = if is_event { 1 } else { usize::MAX };
            found.extend(words(line).take(limit).map(str::to_owned));
        }
        is_in_list &= !matches!(line, "}" | "    }");
        previous = line;
    }
    found
}

#[test]
fn no_row_of_the_catalogue_says_the_same_twice() {
    let mut rows = BTreeSet::new();
    for found in SECTIONS.iter().flat_map(|section| section.reasons) {
        assert!(
            rows.insert((found.reason, found.reported_on)),
            "{} of {}",
            found.reason,
            found.reported_on
        );
    }
}

#[test]
fn every_refusal_is_in_the_catalogue() {
    let catalogued: Vec<_> = claims::REFUSALS.iter().map(|found| found.reason).collect();
    let mut refusals = Refusal::REASONS.to_vec();
    refusals.sort_unstable();
    assert_eq!(catalogued, refusals);
}

#[test]
fn every_reason_constant_is_in_the_catalogue() {
    let names = include_str!("../names.rs");
    let constants = names.lines().filter(|line| line.starts_with("pub const REASON_"));
    let reasons: BTreeSet<_> = constants.filter_map(|line| line.split('"').nth(1)).collect();
    assert!(reasons.len() >= 6, "{reasons:?}");
    let missing: Vec<_> = reasons.difference(&catalogue()).copied().collect();
    assert!(missing.is_empty(), "{missing:?} are not in the catalogue");
}

#[test]
fn every_reason_of_agent_and_scheduler_is_in_the_catalogue() {
    let written: BTreeSet<_> = sources().iter().flat_map(|source| reasons_in(source)).collect();
    for known in ["FieldsDropped", "MigInstanceGone", "OrderUndecided", "GpuNotWatched", "Gone"] {
        assert!(written.contains(known), "the search in the sources does not find {known}");
    }
    let catalogue = catalogue();
    let is_missing = |word: &&String| {
        !catalogue.contains(word.as_str()) && !OTHER_WORDS.contains(&word.as_str())
    };
    let missing: Vec<_> = written.iter().filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "{missing:?} are not in the catalogue: add them, or to OTHER_WORDS if they are no reasons"
    );
}

#[test]
fn every_reason_of_the_catalogue_is_written_somewhere() {
    let mut sources = sources();
    sources.push(include_str!("../names.rs").to_owned());
    sources.push(include_str!("../refusal/reason.rs").to_owned());
    let is_unused = |reason: &&&str| {
        let literal = format!("\"{reason}\"");
        !sources.iter().any(|source| source.contains(&literal))
    };
    let catalogue = catalogue();
    let unused: Vec<_> = catalogue.iter().filter(is_unused).collect();
    assert!(unused.is_empty(), "nothing writes {unused:?}");
}

#[test]
fn sections_are_sorted_and_rows_complete() {
    for Section { title, reasons, .. } in SECTIONS {
        let is_sorted = reasons.windows(2).all(|pair| pair[0].reason < pair[1].reason);
        assert!(is_sorted, "{title}");
        for Reason { reason, reported_on, meaning, remedy } in *reasons {
            assert!(!reported_on.is_empty() && meaning.ends_with('.'), "{reason}");
            assert!(remedy.is_empty() || remedy.ends_with('.'), "{reason}");
            let cells = [reason, reported_on, meaning, remedy];
            assert!(!cells.iter().any(|cell| cell.contains('|')), "{reason}");
        }
    }
}

#[test]
fn checked_in_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/reasons.md");
    let found = fs::read_to_string(path).unwrap_or_default();
    let page = reference();
    assert!(found == page, "{path} is not what the catalogue is; it should be:\n{page}");
}
