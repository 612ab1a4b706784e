use std::os::unix::fs::symlink;

use super::*;

/// A sysfs with devices at places such as `pci0000:15/0000:15:01.0/0000:18:00.0`.
struct Sys(tempfile::TempDir);

impl Sys {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn device(&self, place: &str) -> PathBuf {
        let folder = self.root().join("devices").join(place);
        fs::create_dir_all(&folder).unwrap();
        let links = self.root().join("bus/pci/devices");
        fs::create_dir_all(&links).unwrap();
        let address = place.rsplit('/').next().unwrap();
        symlink(Path::new("../../../devices").join(place), links.join(address)).unwrap();
        folder
    }

    fn card(&self, name: &str, place: &str) -> PathBuf {
        let device = self.device(place);
        let folder = device.join("infiniband").join(name);
        fs::create_dir_all(folder.join("ports/1/counters")).unwrap();
        symlink(Path::new("../../..").join(device.file_name().unwrap()), folder.join("device"))
            .unwrap();
        let class = self.root().join(CLASS);
        fs::create_dir_all(&class).unwrap();
        let target = Path::new("../../devices").join(place).join("infiniband").join(name);
        symlink(target, class.join(name)).unwrap();
        folder
    }

    fn cards(&self) -> Vec<NetworkCard> {
        NetworkCard::all(self.root()).unwrap()
    }

    fn serving(&self, gpu: &str) -> Vec<String> {
        let path = PciPath::of(self.root(), gpu.parse().unwrap()).unwrap();
        NetworkCard::serving(&self.cards(), &path).map(|card| card.name.clone()).collect()
    }
}

#[test]
fn a_card_has_its_address_and_its_ports() {
    let sys = Sys::new();
    assert_eq!(sys.cards(), [], "the kernel has no RDMA");
    let second = sys.card("mlx5_3", "pci0000:37/0000:37:01.0/0000:40:00.0");
    fs::create_dir_all(second.join("ports/2")).unwrap();
    sys.card("mlx5_0", "pci0000:15/0000:15:01.0/0000:18:00.0");
    let cards = sys.cards();
    let shown: Vec<_> =
        cards.iter().map(|card| (&*card.name, card.pci.to_string(), &*card.ports)).collect();
    let expected = [
        ("mlx5_0", "0000:18:00.0".to_owned(), &[1][..]),
        ("mlx5_3", "0000:40:00.0".to_owned(), &[1, 2][..]),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn virtual_functions_and_what_is_not_on_the_bus_are_no_cards() {
    let sys = Sys::new();
    sys.card("mlx5_0", "pci0000:15/0000:15:01.0/0000:18:00.0");
    let function = sys.card("mlx5_7", "pci0000:15/0000:15:01.0/0000:18:00.1");
    symlink("../0000:18:00.0", function.join("../../physfn")).unwrap();
    sys.card("rxe0", "virtual");
    sys.card("mlx5_8", "pci0000:15/0000:15:01.0/0000:18:00.0/mlx5_core.sf.4");
    let names: Vec<String> = sys.cards().into_iter().map(|card| card.name).collect();
    assert_eq!(names, ["mlx5_0"]);
}

#[test]
fn a_port_shows_its_state_and_the_counters_that_it_has() {
    let sys = Sys::new();
    let port = sys.card("mlx5_0", "pci0000:15/0000:15:01.0/0000:18:00.0").join("ports/1");
    let card = sys.cards().remove(0);
    let read = || card.port(sys.root(), 1);
    assert_eq!(read().unwrap_err().kind(), ErrorKind::NotFound);
    for (state, is_active) in [
        ("4: ACTIVE\n", true),
        ("5: ACTIVE_DEFER\n", true),
        ("1: DOWN\n", false),
        ("2: INIT\n", false),
        ("3: ARMED\n", false),
    ] {
        fs::write(port.join("state"), state).unwrap();
        assert_eq!(read().unwrap(), NetworkPort { is_active, ..NetworkPort::default() }, "{state}");
    }
    for (counter, value) in [
        ("symbol_error", "121\n"),
        ("link_error_recovery", "N/A (no PMA)\n"),
        ("link_downed", "3\n"),
    ] {
        fs::write(port.join("counters").join(counter), value).unwrap();
    }
    let shown = read().unwrap();
    assert_eq!((shown.symbol_errors, shown.recoveries, shown.downs), (Some(121), None, Some(3)));
    fs::write(port.join("state"), "up\n").unwrap();
    assert!(read().unwrap_err().to_string().contains("`up` is no state"));
}

#[test]
fn a_gpu_is_served_by_the_cards_behind_its_nearest_switch() {
    let sys = Sys::new();
    let below = "pci0000:15/0000:15:01.0/0000:16:00.0";
    // Two GPUs and two cards behind one switch, one card behind the switch above it, and one at another root port.
    sys.device(&format!("{below}/0000:17:00.0/0000:1b:00.0"));
    sys.device(&format!("{below}/0000:17:01.0/0000:1c:00.0"));
    sys.card("mlx5_1", &format!("{below}/0000:17:02.0/0000:1d:00.0"));
    sys.card("mlx5_0", &format!("{below}/0000:17:03.0/0000:1e:00.0"));
    sys.card("mlx5_2", "pci0000:15/0000:15:01.0/0000:20:00.0");
    sys.card("mlx5_3", "pci0000:15/0000:15:02.0/0000:21:00.0");
    assert_eq!(sys.serving("0000:1b:00.0"), ["mlx5_0", "mlx5_1"]);
    assert_eq!(sys.serving("0000:1c:00.0"), ["mlx5_0", "mlx5_1"]);
    // A GPU beside the inner switch is as near to all cards below the outer one.
    sys.device("pci0000:15/0000:15:01.0/0000:22:00.0");
    assert_eq!(sys.serving("0000:22:00.0"), ["mlx5_0", "mlx5_1", "mlx5_2"]);
    // These share the root complex at most.
    sys.device("pci0000:15/0000:15:03.0/0000:23:00.0");
    sys.device("pci0000:15/0000:15:1e.0");
    sys.device("pci0000:37/0000:37:01.0/0000:43:00.0");
    for gpu in ["0000:23:00.0", "0000:15:1e.0", "0000:43:00.0"] {
        assert_eq!(sys.serving(gpu), [] as [String; 0], "{gpu}");
    }
    assert_eq!(PciPath::of(sys.root(), "0000:99:00.0".parse().unwrap()), None);
}

#[test]
fn a_host_bridge_below_another_one_is_where_a_way_begins() {
    let path = |text: &str| PciPath::parse(Path::new(text)).unwrap();
    let one = path("devices/pci0000:80/0000:80:00.5/pci10000:00/10000:00:01.0/10000:01:00.0");
    let other = path("devices/pci0000:80/0000:80:00.5/pci10001:00/10001:00:01.0/10001:01:00.0");
    assert_eq!((one.shared_bridges(&other), one.shared_bridges(&one)), (0, 2));
    assert_eq!(PciPath::parse(Path::new("devices/virtual/infiniband/rxe0")), None);
}
