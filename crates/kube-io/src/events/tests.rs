use super::*;

#[test]
fn a_long_note_is_cut_between_characters() {
    let cut = shorten(&"ü".repeat(1000));
    assert!(cut.len() <= MAX_NOTE_BYTES && cut.len() > MAX_NOTE_BYTES - 5, "{}", cut.len());
    assert!(cut.ends_with("ü..."));
    assert_eq!(shorten("short"), "short");
}
