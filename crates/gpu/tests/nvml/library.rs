//! Loading the library.

use std::fs;
use std::path::Path;

use octavo_gpu::DriverError;
use octavo_gpu::nvml::{LIBRARY_NAME, Nvml};

use crate::node::{Node, switched};

fn refusal(library: &Path) -> DriverError {
    match Nvml::open(library, Path::new("/sys")) {
        Ok(_) => panic!("{} opened", library.display()),
        Err(error) => error,
    }
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = refusal(Path::new("/nonexistent/libnvidia-ml.so.1"));
    let DriverError::Load { path, reason } = &error else { panic!("{error:?}") };
    assert_eq!(path, "/nonexistent/libnvidia-ml.so.1");
    assert!(reason.contains("No such file"), "{reason}");
}

#[test]
fn a_file_that_is_no_library_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(LIBRARY_NAME);
    fs::write(&file, "text").unwrap();
    assert!(matches!(refusal(&file), DriverError::Load { .. }));
}

#[test]
fn a_library_that_is_not_nvml_names_the_missing_function() {
    // A bare name, which the loader resolves.
    assert_eq!(refusal(Path::new("libc.so.6")), DriverError::Missing { call: "nvmlInitWithFlags" });
}

#[test]
fn a_driver_that_refuses_to_start_says_why() {
    let node = Node::of(switched());
    fs::write(node.driver().join("machine.yaml"), "nothing: here").unwrap();
    let error = refusal(&node.driver().join(LIBRARY_NAME));
    let DriverError::Failed { call, message, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*call, "nvmlInitWithFlags");
    assert!(!message.is_empty());
}
