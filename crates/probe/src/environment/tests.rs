use super::*;

#[test]
fn a_uuid_is_written_in_groups() {
    let uuid = std::array::from_fn(|context| u8::try_from(context * 17).expect("a byte"));
    assert_eq!(text_of(uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
}

#[test]
fn shares_are_listed_by_name_and_damaged_ones_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let share = folder.path().join(name);
        fs::create_dir(&share).expect("a share's folder");
        fs::write(share.join("limits.json"), text).expect("its limits");
    };
    write("b_1", r#"{"gpu": {"uuid": "GPU-1"}, "memoryBytes": 5}"#);
    write("a_1", r#"{"gpu": {"uuid": "GPU-0"}, "memoryBytes": 7}"#);
    write("c_1", "{");
    let shares = shares(folder.path());
    let names: Vec<_> = shares.iter().map(|share| (&*share.folder, share.memory_bytes)).collect();
    assert_eq!(names, [("a_1", 7), ("b_1", 5)]);
}

#[test]
fn without_shares_there_are_none() {
    assert!(shares(Path::new("/nonexistent")).is_empty());
}
