use super::*;

#[test]
fn functions_of_the_c_library_are_found_where_they_are() {
    let found = c_library(b"getppid");
    assert_ne!(found, 0);
    // JUSTIFICATION: the test checks that the address is that of the function.
    // SAFETY: `pid_t getppid(void)`.
    let function: extern "C" fn() -> i32 = unsafe { core::mem::transmute(found) };
    assert_eq!(function().cast_unsigned(), std::os::unix::process::parent_id());
}

#[test]
fn what_is_not_exported_is_not_found() {
    assert_eq!(c_library(b"octavo_is_no_function"), 0);
    assert_eq!(c_library(b""), 0);
}

#[test]
fn both_hash_tables_know_every_symbol() {
    let mut compared = 0;
    each(|library| {
        let image = library.image;
        for name in [&b"getppid"[..], b"pthread_create", b"dlsym", b"dl_iterate_phdr", b"nothing"] {
            let by_gnu = image.by_gnu_hash(name);
            let by_old = image.by_old_hash(name);
            if image.has_gnu_hash() && image.has_old_hash() {
                assert_eq!(by_gnu.is_some(), by_old.is_some());
                compared += usize::from(by_gnu.is_some());
            }
        }
        true
    });
    // The system's libraries need not have both tables; entries in both must agree.
    assert!(compared < 1000);
}
