use clap::{Args as _, Command, FromArgMatches as _};

use super::*;

const GIB: u64 = 1 << 30;
const GPU: (&str, u32, u64) = ("GPU-0c7a0000-0000-4000-8000-000000000000", 3, 80 * GIB);

pub(in super::super) fn asked(root: &Path, flags: &str) -> anyhow::Result<ShareRequest> {
    let words = ["share"].into_iter().chain(flags.split_whitespace()).chain(["--", "true"]);
    let matches = RunArgs::augment_args(Command::new("share")).try_get_matches_from(words)?;
    ShareRequest::new(&RunArgs::from_arg_matches(&matches)?, "a", root, GPU)
}

#[test]
fn what_a_share_asks_for_is_read_as_it_was_written() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(ShareRequest::read(root.path()), None);
    let flags = "--memory 1Gi --compute 30% --compute-limit 50% --class best-effort";
    let request = asked(root.path(), flags).unwrap();
    request.write(root.path()).unwrap();
    let read = ShareRequest::read(root.path()).unwrap();
    assert_eq!(read, request);
    let share = read.active();
    assert_eq!((share.compute_milli_percent, share.compute_limit), (30_000, Some(50_000)));
    assert_eq!((share.memory_request, share.memory_bytes), (GIB, GIB));
    assert_eq!((share.class, share.device.as_str()), (ShareClass::BestEffort, "gpu-3"));
    assert_eq!(share.folder, share_folder("a", "0").on_host(root.path()));
    assert!(!read.is_elastic());
}

#[test]
fn a_share_may_have_up_to_its_limit() {
    let root = tempfile::tempdir().unwrap();
    let request = asked(root.path(), "--memory 20Gi --memory-limit 60Gi").unwrap();
    let share = request.active();
    assert_eq!((share.memory_request, share.memory_bytes), (20 * GIB, 60 * GIB));
    assert!(request.is_elastic());
}

#[test]
fn shares_that_ask_for_more_than_their_gpu_are_found() {
    let root = tempfile::tempdir().unwrap();
    let of = |memory: &str| asked(root.path(), &format!("--memory {memory}")).unwrap();
    let (half, rest) = (of("40Gi"), of("41Gi"));
    assert_eq!(half.excess([&of("40Gi")], 80 * GIB), None);
    let excess = half.excess([&rest], 80 * GIB).unwrap();
    assert!(excess.contains("82944 MiB together, and it has 81920 MiB"), "{excess}");
    let elsewhere = ShareRequest { gpu: "GPU-2".to_owned(), ..rest };
    assert_eq!(half.excess([&elsewhere], 80 * GIB), None);
}

#[test]
fn the_budget_of_the_host_is_that_of_a_share_that_lends() {
    let root = tempfile::tempdir().unwrap();
    let flags = "--memory 1Gi --memory-limit 2Gi --swap-host-memory";
    let request = asked(root.path(), &format!("{flags} 64Gi")).unwrap();
    assert_eq!(request.swap_host_memory, Some(64 * GIB));
    assert!(asked(root.path(), &format!("{flags} 0")).is_err());
    assert!(asked(root.path(), "--memory 1Gi --swap-host-memory 64Gi").is_err());
    let mut joined = asked(root.path(), "--memory 1Gi").unwrap();
    joined.join(&request);
    assert_eq!(joined.swap_host_memory, Some(64 * GIB));
}

#[test]
fn what_no_share_can_have_is_refused() {
    let root = tempfile::tempdir().unwrap();
    for (flags, why) in [
        ("--memory 0", "at least a byte"),
        ("--memory 81Gi", "81920 MiB"),
        ("--memory 1Gi --memory-limit 81Gi", "81920 MiB"),
        ("--memory 2Gi --memory-limit 1Gi", "--memory-limit is less"),
        ("--memory 1Gi --compute-limit 0%", "--compute-limit is 0"),
        ("--memory 1Gi --compute 50% --compute-limit 20%", "--compute-limit is less"),
        ("--memory 1Gi --class fast", "latency-critical, normal, best-effort"),
    ] {
        let error = asked(root.path(), flags).unwrap_err().to_string();
        assert!(error.contains(why), "{flags}: {error}");
    }
}

#[test]
fn a_command_that_joins_a_share_leaves_what_it_does_not_ask_for() {
    let root = tempfile::tempdir().unwrap();
    let earlier = asked(
        root.path(),
        "--memory 1Gi --memory-limit 4Gi --compute 30% --class latency-critical",
    );
    let earlier = earlier.unwrap();
    let joined = |flags: &str| {
        let mut request = asked(root.path(), flags).unwrap();
        request.join(&earlier);
        let share = request.active();
        (share.memory_request, share.memory_bytes, share.compute_milli_percent, share.class)
    };
    let critical = ShareClass::LatencyCritical;
    assert_eq!(joined("--memory 1Gi"), (GIB, 4 * GIB, 30_000, critical));
    let other = "--memory 2Gi --memory-limit 3Gi --compute 50%";
    assert_eq!(joined(other), (2 * GIB, 3 * GIB, 50_000, ShareClass::Normal));
}
