//! No text panics, and each compiled expression has a result or an error.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::devices::samples;
use super::table::expressions;
use super::{DeviceView, Selector};

/// Parts of expressions.
static WORDS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let signs = "( ) [ ] { } . , ? : ! - + * / % < > <= >= == != && || = | & # @ ` ' \" \\ // ''' é ✓ \
                 \u{1F600} 0 1 9223372036854775808 0x 1e 1.5 .5 1u in null true if _ $";
    let mut words: Vec<String> = signs.split(' ').map(str::to_owned).collect();
    for expression in expressions() {
        let mut word = String::new();
        for c in expression.chars() {
            if c.is_alphanumeric() || c == '_' {
                word.push(c);
            } else {
                words.push(std::mem::take(&mut word));
                words.push(c.to_string());
            }
        }
        words.push(word);
    }
    words.sort_unstable();
    words.dedup();
    words
});

static EXPRESSIONS: LazyLock<Vec<&str>> = LazyLock::new(|| expressions().collect());

/// Compiles and evaluates, whatever the result.
fn run(expression: &str) {
    if let Ok(selector) = Selector::compile(expression) {
        for sample in samples() {
            let view = DeviceView { driver: sample.driver, device: &sample.device };
            let answer = selector.matches(view);
            assert_eq!(answer, selector.matches(view), "answers repeat: {expression}");
        }
    }
}

/// A known expression with changes: a position, the number of characters to remove, and the word to
/// insert.
fn mutated() -> impl Strategy<Value = String> {
    let change = (any::<prop::sample::Index>(), 0_usize..4, any::<prop::sample::Index>());
    let changes = prop::collection::vec(change, 1..4);
    (any::<prop::sample::Index>(), changes).prop_map(|(which, changes)| {
        let mut text: Vec<char> = which.get(&EXPRESSIONS).chars().collect();
        for (place, cut, word) in changes {
            let start = place.index(text.len() + 1);
            let end = (start + cut).min(text.len());
            text.splice(start..end, word.get(&WORDS).chars());
        }
        text.into_iter().collect()
    })
}

/// The start of one known expression and the end of another.
fn crossed() -> impl Strategy<Value = String> {
    let index = any::<prop::sample::Index>;
    (index(), index(), index(), index()).prop_map(|(first, second, cut, from)| {
        let first: Vec<char> = first.get(&EXPRESSIONS).chars().collect();
        let second: Vec<char> = second.get(&EXPRESSIONS).chars().collect();
        let head = first.get(..cut.index(first.len() + 1)).unwrap_or_default();
        let tail = second.get(from.index(second.len() + 1)..).unwrap_or_default();
        head.iter().chain(tail).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn any_text_is_an_expression_or_an_error(text in any::<String>()) {
        run(&text);
    }

    #[test]
    fn any_words_are_an_expression_or_an_error(
        words in prop::collection::vec(any::<prop::sample::Index>(), 0..20)
    ) {
        let words: Vec<&str> = words.iter().map(|word| word.get(&WORDS).as_str()).collect();
        run(&words.join(" "));
    }

    #[test]
    fn a_changed_expression_is_one_or_an_error(text in mutated()) {
        run(&text);
    }

    #[test]
    fn halves_of_two_expressions_are_one_or_an_error(text in crossed()) {
        run(&text);
    }
}
