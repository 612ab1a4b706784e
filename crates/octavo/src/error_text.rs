//! Errors as lines for people.

use std::fmt::Write as _;

/// The lines for an error: what happened, then its causes. Omits a cause that the previous line already includes.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut last = error.to_string();
    let mut text = format!("error: {last}\n");
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !last.contains(&cause) {
            let _ = writeln!(text, "  caused by: {cause}");
            last = cause;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::error_text;

    #[test]
    fn causes_follow_without_repetition() {
        let error =
            anyhow!("disk full").context("cannot write a: disk full").context("cannot save");
        assert_eq!(
            error_text(&error),
            "error: cannot save\n  caused by: cannot write a: disk full\n"
        );
    }
}
