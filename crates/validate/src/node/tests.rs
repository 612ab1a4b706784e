use std::fs;

use super::*;

#[test]
fn a_status_file_is_removed_before_and_written_after() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("validations");
    let files = StatusFolder::new(Some(&inner));
    files.remove(Component::Driver).unwrap();
    files.write(Component::Driver, "A=1\n").unwrap();
    files.write(Component::Cuda, "").unwrap();
    assert_eq!(fs::read_to_string(inner.join("driver-ready")).unwrap(), "A=1\n");
    let names = |folder: &std::path::Path| {
        let mut names: Vec<String> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    };
    assert_eq!(names(&inner), ["cuda-ready", "driver-ready"]);
    files.remove(Component::Driver).unwrap();
    assert_eq!(names(&inner), ["cuda-ready"]);
    StatusFolder::new(None).write(Component::Driver, "").unwrap();
}

#[test]
fn a_component_without_its_status_file_is_not_ready() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let files = StatusFolder::new(Some(&file));
    let root = DriverRoot::new(std::path::Path::new("/"), None);
    let finding = record(Finding::ready(Component::Cuda, "works"), &files, &root);
    assert_eq!(finding.state, State::Failed);
    assert!(finding.message.starts_with("works; the status file "), "{finding:?}");
    let failed = Finding::failed(Component::Cuda, "broken", "repair");
    assert_eq!(record(failed.clone(), &files, &root), failed);
}

#[test]
fn long_messages_fit_into_a_termination_message() {
    let mut text = "ä".repeat(1000);
    shorten(&mut text);
    assert!(text.len() <= MAX_MESSAGE_BYTES + 4 && text.ends_with("ä ..."), "{text}");
}

#[tokio::test]
async fn a_program_that_fails_is_quoted() {
    let finding = cuda::check(std::path::Path::new("/bin/false")).await;
    assert_eq!(finding.state, State::Failed);
    assert!(finding.message.contains("exit status: 1"), "{finding:?}");
    let finding = cuda::check(std::path::Path::new("/missing/octavo")).await;
    assert!(finding.message.contains("cannot be started"), "{finding:?}");
    assert_eq!(cuda::check(std::path::Path::new("/bin/true")).await.state, State::Ready);
}
