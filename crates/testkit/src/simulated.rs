//! The simulated libraries and programs of the driver.

use std::path::PathBuf;

/// The simulated management library. The crate of the test has it as a dev-dependency.
///
/// # Panics
///
/// Without the library beside the test.
pub fn simulated_nvml() -> PathBuf {
    beside("liboctavo_fake_nvml.so")
}

/// The simulated library of CUDA. The crate of the test has it as a dev-dependency.
///
/// # Panics
///
/// Without the library beside the test.
pub fn simulated_cuda() -> PathBuf {
    beside("liboctavo_fake_cuda.so")
}

/// The simulated service of IMEX, and its command. `cargo build` makes them.
///
/// # Panics
///
/// Without the programs beside the test.
pub fn simulated_imex() -> (PathBuf, PathBuf) {
    (beside("nvidia-imex"), beside("nvidia-imex-ctl"))
}

/// Another program of the driver, such as `nvidia-smi`. `cargo build` makes it.
///
/// # Panics
///
/// Without the program beside the test.
pub fn simulated_program(name: &str) -> PathBuf {
    beside(name)
}

/// Cargo puts libraries and programs beside the test or one folder above it.
fn beside(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let mut folders = test.ancestors().skip(1).take(2).map(|folder| folder.join(name));
    let found = folders.find(|path| path.is_file());
    found.ok_or_else(|| format!("no {name} beside {}: run `cargo build`", test.display())).unwrap()
}
