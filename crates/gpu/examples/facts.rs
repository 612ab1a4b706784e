//! Prints what a driver reports about its GPUs and about the MIG profiles that they support.
//! Changes nothing.
//!
//! `cargo run --package octavo-gpu --example facts [DRIVER ROOT [SYS ROOT]]`

#![allow(clippy::print_stdout, reason = "printing is what the example is for")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use octavo_gpu::nvml::{Nvml, find_library};
use octavo_gpu::{Driver as _, Inventory};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args_os().skip(1).map(PathBuf::from);
    let driver_root = args.next().unwrap_or_else(|| "/".into());
    let sys_root = args.next().unwrap_or_else(|| "/sys".into());
    let library = find_library(&driver_root)?;

    let started = Instant::now();
    let driver = Nvml::open(&library, &sys_root)?;
    let opened = started.elapsed();
    let inventory = Inventory::read(&driver)?;
    let read = started.elapsed().saturating_sub(opened);
    println!("library: {}", library.display());
    println!("opened in {opened:?}, inventory read in {read:?}");
    println!("{:#?}", inventory.versions);
    for gpu in &inventory.unreadable {
        println!("GPU {} cannot be read: {}", gpu.index, gpu.error);
    }
    for gpu in &inventory.gpus {
        println!("\n{gpu:#?}");
        println!("health: {:?}", driver.health(&gpu.uuid));
        match driver.mig_profiles(&gpu.uuid) {
            Err(error) => println!("MIG profiles: {error}"),
            Ok(profiles) => {
                println!("MIG profiles: number, id, name, MiB, SMs, instances, placements");
                for profile in profiles {
                    let places: Vec<String> = profile
                        .placements
                        .iter()
                        .map(|place| format!("{}:{}", place.start, place.size))
                        .collect();
                    println!(
                        "  {} {} {} {} {} {} {{{}}}",
                        profile.number,
                        profile.id,
                        profile.name,
                        profile.memory_mib,
                        profile.multiprocessors,
                        profile.instances,
                        places.join(",")
                    );
                }
            }
        }
    }
    Ok(())
}
