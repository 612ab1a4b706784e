use super::*;

#[tokio::test]
async fn the_program_is_written_replaced_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("opt/bin/octavo-cdi-hook");
    install(&path).await.unwrap();
    let made = fs::metadata(&path).unwrap().modified().unwrap();
    install(&path).await.unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), made, "it is left alone");
    fs::write(&path, "an older one").unwrap();
    install(&path).await.unwrap();
    assert_eq!(fs::read(&path).unwrap(), HOOK);
    let parent = path.parent().unwrap();
    assert_eq!(fs::read_dir(parent).unwrap().count(), 1, "no temporary file stays");
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    install(&path).await.unwrap();
}

#[tokio::test]
async fn a_folder_that_cannot_be_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let error = install(&file.join("octavo-cdi-hook")).await.unwrap_err();
    let error = format!("{error:#}");
    assert!(error.contains("file/octavo-cdi-hook") && error.contains("hookDir"), "{error}");
}

#[tokio::test]
async fn hooks_that_are_this_program_are_left_alone() {
    let own = std::env::current_exe().unwrap();
    let before = fs::metadata(&own).unwrap().len();
    install(&own).await.unwrap();
    assert_eq!(fs::metadata(&own).unwrap().len(), before);
}
