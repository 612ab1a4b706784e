//! The typed command line in a form that can be pasted into a shell.

use std::ffi::OsString;

/// The command line of these words, quoted for POSIX shells. The first word, the program, becomes
/// `octavo`. Invalid UTF-8 becomes replacement characters.
pub(super) fn shell_line(words: impl IntoIterator<Item = OsString>) -> String {
    let mut line = "octavo".to_owned();
    for word in words.into_iter().skip(1) {
        line.push(' ');
        push_quoted(&mut line, &word.to_string_lossy());
    }
    line
}

/// Appends a quoted word. Within single quotes only the single quote is special, so it goes outside
/// of them behind a backslash.
fn push_quoted(line: &mut String, word: &str) {
    // At the start of a word `=` is special in some shells.
    if !word.is_empty() && !word.starts_with('=') && word.chars().all(is_plain) {
        line.push_str(word);
        return;
    }
    line.push('\'');
    line.push_str(&word.replace('\'', r"'\''"));
    line.push('\'');
}

/// Whether a character is literal in every shell and position.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-_./,:=@%+".contains(character)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn line(words: &[&str]) -> String {
        shell_line(words.iter().map(OsString::from))
    }

    #[test]
    fn plain_words_stay_as_they_are() {
        let words = ["/usr/bin/octavo", "sim", "report", "--out=a_b-1.html", "--seed", "42..51"];
        assert_eq!(line(&words), "octavo sim report --out=a_b-1.html --seed 42..51");
        assert_eq!(line(&["./kubectl-octavo"]), "octavo");
        assert_eq!(line(&[]), "octavo");
    }

    #[test]
    fn spaces_quotes_and_line_feeds_are_quoted() {
        assert_eq!(
            line(&["octavo", "a b", "it's", "", "a\nb"]),
            r"octavo 'a b' 'it'\''s' '' 'a
b'"
        );
        assert_eq!(
            line(&["octavo", "~", "$HOME", "a;b", "=ls", "*"]),
            "octavo '~' '$HOME' 'a;b' '=ls' '*'"
        );
    }

    #[test]
    fn a_shell_reads_back_what_was_typed() {
        #[rustfmt::skip]
        let words = [
            "octavo", "plain", "", " ", "a  b", "'", "''", "it's", "\"", "\\", "\\'", "a\nb\n", "\n",
            "\t", "$(id)", "`id`", "$HOME", "~", "*", "[a]", "{a,b}", "a|b", "a&b", ";", "#x", "!", "-n",
            "--pods=größe ü.csv", "%s", "<", ">", "=", "a=b", "\u{1b}[0m",
        ];
        let quoted = line(&words);
        let arguments = quoted.strip_prefix("octavo ").unwrap();
        let script = format!("printf '%s\\0' {arguments}");
        let shell = Command::new("sh").args(["-c", &script]).output().unwrap();
        assert!(shell.status.success(), "{quoted}");
        let read: Vec<&[u8]> = shell.stdout.split(|byte| *byte == 0).collect();
        let (last, read) = read.split_last().unwrap();
        assert!(last.is_empty());
        let typed: Vec<&[u8]> = words[1..].iter().map(|word| word.as_bytes()).collect();
        assert_eq!(read, typed);
    }
}
