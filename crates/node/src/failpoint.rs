//! Named points at which tests kill the process, to prove that every step is crash-safe.

/// Kills the process with SIGKILL if `OCTAVO_CRASH_AT` names this point. Compiled out of release builds.
pub fn hit(name: &str) {
    #[cfg(debug_assertions)]
    if std::env::var_os("OCTAVO_CRASH_AT").is_some_and(|at| at == name) {
        // A signal to the own process cannot fail. If it did, the test would see the process alive.
        let _ =
            rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park();
        }
    }
    #[cfg(not(debug_assertions))]
    let _ = name;
}
