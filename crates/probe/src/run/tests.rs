use super::*;

#[test]
fn without_names_all_default_paths_are_tried() {
    let names: Vec<_> = select_paths(&[]).expect("paths").iter().map(|path| path.name).collect();
    assert!(names.contains(&"alloc") && names.contains(&"graph"));
    assert!(!names.contains(&"namespace"), "it loads the driver twice");
}

#[test]
fn an_unknown_path_is_named() {
    let error =
        select_paths(&["alloc".to_owned(), "magic".to_owned()]).map(|_| ()).expect_err("unknown");
    assert!(error.to_string().contains("\"magic\""), "{error}");
}

#[test]
fn path_names_are_unique() {
    let mut names: Vec<_> = ALLOCATION_PATHS.iter().map(|path| path.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALLOCATION_PATHS.len());
}

#[test]
fn without_a_guard_there_is_no_driver_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    assert!(driver_library(folder.path()).is_err());
    assert!(driver_library(&folder.path().join("missing")).is_err());
    std::fs::write(folder.path().join("libcuda.so.580.1"), "").expect("a file");
    let found = driver_library(folder.path()).expect("a library");
    assert!(found.ends_with("libcuda.so.580.1"));
}
