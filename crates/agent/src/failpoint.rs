//! Named points at which a test can have the process killed, to prove that every step survives it.

/// Dies of SIGKILL here in a debug build whose environment names this point in `OCTAVO_CRASH_AT`; does
/// nothing in a release build.
pub(crate) fn hit(name: &str) {
    #[cfg(debug_assertions)]
    if std::env::var_os("OCTAVO_CRASH_AT").is_some_and(|at| at == name) {
        // A signal to oneself cannot fail; should it ever, the test sees the process live on.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}
