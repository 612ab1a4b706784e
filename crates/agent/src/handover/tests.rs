use std::fs::File;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{NodeConfig, NodeFile};

struct Fixture {
    config: Arc<NodeConfig>,
    requests: mpsc::Receiver<HandoverRequest>,
    _stop: tokio_util::sync::DropGuard,
    folder: tempfile::TempDir,
}

impl Fixture {
    /// An active agent that listens.
    async fn set() -> Self {
        let folder = tempfile::Builder::new().prefix("oh").tempdir().unwrap();
        let settings = NodeFile {
            node_name: Some("node".to_owned()),
            kubelet_root: Some(folder.path().to_owned()),
            ..NodeFile::default()
        };
        let config = Arc::new(settings.complete().unwrap());
        let (sender, requests) = mpsc::channel(1);
        let stop = CancellationToken::new();
        tokio::spawn(listen(Arc::clone(&config), || false, sender, stop.clone()));
        let fixture = Self { config, requests, _stop: stop.drop_guard(), folder };
        while UnixStream::connect(fixture.socket()).await.is_err() {
            tokio::task::yield_now().await;
        }
        fixture
    }

    fn socket(&self) -> PathBuf {
        self.config.plugin_folder().join(HANDOVER_SOCKET)
    }

    fn checkpoints(&self) -> PathBuf {
        self.config.checkpoint_folder()
    }
}

#[tokio::test]
async fn the_lock_is_never_free_between_two_agents() {
    let mut fixture = Fixture::set().await;
    let folder = fixture.checkpoints();
    let is_free = || Lock::take(&folder).unwrap().is_some();
    let lock = Lock::take(&folder).unwrap().unwrap();
    let offer = HandoverOffer::find(&fixture.socket(), "b").await.unwrap();
    assert!(!is_free());
    assert_eq!(offer.has_driver, Some(false));
    let (accepted, ()) = tokio::join!(offer.accept(&folder), async {
        let request = fixture.requests.recv().await.unwrap();
        assert_eq!(request.instance, "b");
        request.give(lock).await.unwrap();
        assert!(!is_free(), "the one that gave it has closed its descriptor");
    });
    let lock = accepted.unwrap();
    assert!(!is_free());
    drop(lock);
    assert!(is_free());
}

#[tokio::test]
async fn a_newcomer_that_declines_leaves_the_node() {
    let mut fixture = Fixture::set().await;
    HandoverOffer::find(&fixture.socket(), "b").await.unwrap().decline().await;
    let offer = HandoverOffer::find(&fixture.socket(), "c").await.unwrap();
    let mut stream = offer.stream;
    stream.write_all(b"give\n").await.unwrap();
    assert_eq!(fixture.requests.recv().await.unwrap().instance, "c");
}

#[tokio::test]
async fn undelivered_lock_is_released() {
    let mut fixture = Fixture::set().await;
    let folder = fixture.checkpoints();
    let lock = Lock::take(&folder).unwrap().unwrap();
    let offer = HandoverOffer::find(&fixture.socket(), "b").await.unwrap();
    let mut stream = offer.stream;
    stream.write_all(b"give\n").await.unwrap();
    let request = fixture.requests.recv().await.unwrap();
    request.give(lock).await.unwrap();
    assert!(Lock::take(&folder).unwrap().is_none(), "it is on its way");
    drop(stream);
    assert!(Lock::take(&folder).unwrap().is_some());
}

#[tokio::test]
async fn a_newcomer_that_is_gone_does_not_get_the_lock() {
    let mut fixture = Fixture::set().await;
    let folder = fixture.checkpoints();
    let lock = Lock::take(&folder).unwrap().unwrap();
    let offer = HandoverOffer::find(&fixture.socket(), "b").await.unwrap();
    let mut stream = offer.stream;
    stream.write_all(b"give\n").await.unwrap();
    let request = fixture.requests.recv().await.unwrap();
    drop(stream);
    let (lock, _) = request.give(lock).await.unwrap_err();
    assert!(Lock::take(&folder).unwrap().is_none());
    drop(lock);
}

#[tokio::test]
async fn a_newcomer_that_is_sent_away_knows() {
    let mut fixture = Fixture::set().await;
    let offer = HandoverOffer::find(&fixture.socket(), "b").await.unwrap();
    let folder = fixture.checkpoints();
    let (refused, ()) = tokio::join!(offer.accept(&folder), async {
        drop(fixture.requests.recv().await.unwrap());
    });
    assert!(matches!(refused, Err(HandoverError::Ended(_))), "{refused:?}");
}

#[tokio::test]
async fn a_file_that_is_not_the_lock_is_not_taken_for_it() {
    let folder = tempfile::tempdir().unwrap();
    drop(Lock::take(folder.path()).unwrap());
    let other = File::create(folder.path().join("other")).unwrap();
    let error = Lock::adopt(folder.path(), other.into()).unwrap_err().to_string();
    assert!(error.contains("another file"), "{error}");
    let _held = Lock::take(folder.path()).unwrap().unwrap();
    let reopened = File::open(folder.path().join("lock")).unwrap();
    let error = Lock::adopt(folder.path(), reopened.into()).unwrap_err().to_string();
    assert!(error.contains("does not hold"), "{error}");
}

#[tokio::test]
async fn lock_on_a_removed_file_excludes_no_agent() {
    let folder = tempfile::tempdir().unwrap();
    let _old = Lock::take(folder.path()).unwrap().unwrap();
    std::fs::remove_file(folder.path().join("lock")).unwrap();
    let new = Lock::take(folder.path()).unwrap();
    assert!(new.is_some() && Lock::take(folder.path()).unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_hangs_or_says_something_else_is_given_up() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(HANDOVER_SOCKET);
    let no_one = HandoverOffer::find(&path, "b").await.unwrap_err();
    assert!(matches!(no_one, HandoverError::NotListening { .. }), "{no_one}");
    let listener = UnixListener::bind(&path).unwrap();
    let (silent, _stream) = tokio::join!(HandoverOffer::find(&path, "b"), listener.accept());
    assert!(matches!(silent, Err(HandoverError::TimedOut { .. })), "{silent:?}");
    let (other, ()) = tokio::join!(HandoverOffer::find(&path, "b"), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"here 7\n").await.unwrap();
        let _ = line(&mut stream).await;
    });
    assert!(matches!(other, Err(HandoverError::UnknownReply(_))), "{other:?}");
}

#[tokio::test]
async fn a_newer_agent_is_answered_in_the_form_that_is_known_here() {
    let fixture = Fixture::set().await;
    let mut stream = UnixStream::connect(fixture.socket()).await.unwrap();
    stream.write_all(b"octavo handover 9 newer\n").await.unwrap();
    assert_eq!(line(&mut stream).await.unwrap(), "here 2 no-driver");
    let mut stream = UnixStream::connect(fixture.socket()).await.unwrap();
    stream.write_all(b"octavo handover 1 older\n").await.unwrap();
    assert_eq!(line(&mut stream).await.unwrap(), "here 1");
    for nonsense in
        ["GET / HTTP/1.1\n".to_owned(), "octavo handover x y\n".to_owned(), "x".repeat(300)]
    {
        let mut stream = UnixStream::connect(fixture.socket()).await.unwrap();
        stream.write_all(nonsense.as_bytes()).await.unwrap();
        assert!(line(&mut stream).await.is_err(), "{nonsense}");
    }
    assert!(fixture.folder.path().exists());
}

#[tokio::test]
async fn released_lock_is_free_although_a_forked_child_has_its_descriptor() {
    let folder = tempfile::tempdir().unwrap();
    let lock = Lock::take(folder.path()).unwrap().unwrap();
    let flags = rustix::io::fcntl_getfd(&lock).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "no program has it");
    // A forked child has another descriptor of the same open file.
    let of_child = rustix::io::fcntl_dupfd_cloexec(&lock, 0).unwrap();
    assert!(Lock::take(folder.path()).unwrap().is_none());
    drop(lock);
    assert!(Lock::take(folder.path()).unwrap().is_some());
    drop(of_child);
}
