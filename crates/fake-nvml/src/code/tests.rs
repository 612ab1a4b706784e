use super::{Code, words};

#[test]
fn every_code_has_words_and_unknown_ones_say_so() {
    assert_eq!(words(Code::GPU_IS_LOST.0), c"GPU is lost");
    assert_eq!(words(Code::UNKNOWN.0), c"Unknown Error");
    assert_eq!(words(u32::MAX), c"Unknown Error");
    assert!((0..31).all(|code| words(code) != c"Unknown Error"));
}
