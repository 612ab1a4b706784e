use super::*;

fn report() -> ServiceReport {
    ServiceReport {
        is_ready: true,
        connected: [NodeId(1), NodeId(u128::MAX)].into(),
        lost: [NodeId(7)].into(),
    }
}

#[test]
fn a_report_counts_as_long_as_its_service_lives() {
    let machine = tempfile::tempdir().unwrap();
    assert_eq!(ServiceReport::read(machine.path()), ServiceReport::default());
    let mut publication = Publication::new(machine.path());
    publication.publish(&report()).unwrap();
    let read = ServiceReport::read(machine.path());
    assert_eq!(read, report());
    assert!(read.reaches(NodeId(1)) && !read.reaches(NodeId(7)));
    let stopping = ServiceReport { is_ready: false, ..report() };
    publication.publish(&stopping).unwrap();
    assert_eq!(ServiceReport::read(machine.path()), stopping);
    assert!(!stopping.reaches(NodeId(1)));
    publication.publish(&report()).unwrap();
    drop(publication);
    assert_eq!(ServiceReport::read(machine.path()), ServiceReport::default(), "it has ended");
}

#[test]
fn a_reader_never_sees_a_living_service_as_ended() {
    let machine = tempfile::tempdir().unwrap();
    let mut publication = Publication::new(machine.path());
    publication.publish(&report()).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..500 {
                publication.publish(&report()).unwrap();
            }
        });
        while !writer.is_finished() {
            assert_eq!(ServiceReport::read(machine.path()), report());
        }
    });
}
