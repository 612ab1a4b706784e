//! What the guard costs. Figures are printed and not judged: `cargo test -p octavo-guard-library --test wall
//! speed -- --ignored --nocapture`.

use crate::container::{Container, GIB, Way};

fn nanoseconds(program: &mut crate::container::Program, what: &str) -> f64 {
    let mut figures: Vec<f64> = (0..9)
        .map(|_| {
            program
                .say(what)
                .strip_prefix("0 ")
                .and_then(|figure| figure.parse().ok())
                .expect("a number")
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[test]
#[ignore = "figures, for people"]
fn nanoseconds_of_a_launch_and_of_an_allocation() {
    let container = Container::of(80 * GIB);
    let crowd: Vec<_> = (0..99).map(|_| container.ready(Way::Proxy)).collect();
    for (what, command) in [("launch", "time 0 2000000"), ("alloc+free", "time 1 300000")] {
        let bare = nanoseconds(&mut container.ready(Way::None), command);
        let proxy = nanoseconds(&mut container.ready(Way::Proxy), command);
        let preload = nanoseconds(&mut container.ready(Way::Preload), command);
        println!(
            "{what:12} bare {bare:7.1} ns, proxy {proxy:7.1} ns ({:+.1}), preload {preload:7.1} ns ({:+.1})",
            proxy - bare,
            preload - bare,
        );
    }
    drop(crowd);
}
