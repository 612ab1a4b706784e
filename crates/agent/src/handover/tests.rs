use std::fs::File;
use std::sync::Arc;

use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::config::{NodeConfig, NodeFile};

struct Stage {
    config: Arc<NodeConfig>,
    askers: mpsc::Receiver<Asker>,
    _stop: tokio_util::sync::DropGuard,
    folder: tempfile::TempDir,
}

impl Stage {
    /// An active agent that listens.
    async fn set() -> Self {
        let folder = tempfile::Builder::new().prefix("oh").tempdir().unwrap();
        let settings = NodeFile {
            node_name: Some("node".to_owned()),
            kubelet_root: Some(folder.path().to_owned()),
            ..NodeFile::default()
        };
        let config = Arc::new(settings.complete().unwrap());
        let (sender, askers) = mpsc::channel(1);
        let stop = CancellationToken::new();
        tokio::spawn(listen(Arc::clone(&config), sender, stop.clone()));
        let stage = Self { config, askers, _stop: stop.drop_guard(), folder };
        while UnixStream::connect(stage.socket()).await.is_err() {
            tokio::task::yield_now().await;
        }
        stage
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
    let mut stage = Stage::set().await;
    let folder = stage.checkpoints();
    let is_free = || Lock::take(&folder).unwrap().is_some();
    let lock = Lock::take(&folder).unwrap().unwrap();
    let offer = Offer::find(&stage.socket(), "b").await.unwrap();
    assert!(!is_free());
    let (accepted, ()) = tokio::join!(offer.accept(&folder), async {
        let asker = stage.askers.recv().await.unwrap();
        assert_eq!(asker.instance, "b");
        asker.give(lock).await.unwrap();
        assert!(!is_free(), "the one that gave it has closed its descriptor");
    });
    let lock = accepted.unwrap();
    assert!(!is_free());
    drop(lock);
    assert!(is_free());
}

#[tokio::test]
async fn a_lock_that_nobody_receives_comes_free() {
    let mut stage = Stage::set().await;
    let folder = stage.checkpoints();
    let lock = Lock::take(&folder).unwrap().unwrap();
    let offer = Offer::find(&stage.socket(), "b").await.unwrap();
    let mut stream = offer.stream;
    stream.write_all(b"give\n").await.unwrap();
    let asker = stage.askers.recv().await.unwrap();
    asker.give(lock).await.unwrap();
    assert!(Lock::take(&folder).unwrap().is_none(), "it is on its way");
    drop(stream);
    assert!(Lock::take(&folder).unwrap().is_some());
}

#[tokio::test]
async fn a_newcomer_that_is_gone_does_not_get_the_lock() {
    let mut stage = Stage::set().await;
    let folder = stage.checkpoints();
    let lock = Lock::take(&folder).unwrap().unwrap();
    let offer = Offer::find(&stage.socket(), "b").await.unwrap();
    let mut stream = offer.stream;
    stream.write_all(b"give\n").await.unwrap();
    let asker = stage.askers.recv().await.unwrap();
    drop(stream);
    let (lock, _) = asker.give(lock).await.unwrap_err();
    assert!(Lock::take(&folder).unwrap().is_none());
    drop(lock);
}

#[tokio::test]
async fn a_newcomer_that_is_sent_away_knows() {
    let mut stage = Stage::set().await;
    let offer = Offer::find(&stage.socket(), "b").await.unwrap();
    let folder = stage.checkpoints();
    let (refused, ()) = tokio::join!(offer.accept(&folder), async {
        drop(stage.askers.recv().await.unwrap());
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
    let opened_anew = File::open(folder.path().join("lock")).unwrap();
    let error = Lock::adopt(folder.path(), opened_anew.into()).unwrap_err().to_string();
    assert!(error.contains("does not hold"), "{error}");
}

#[tokio::test]
async fn a_lock_whose_file_was_removed_keeps_nobody_out() {
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
    let nobody = Offer::find(&path, "b").await.unwrap_err();
    assert!(matches!(nobody, HandoverError::NobodyListens { .. }), "{nobody}");
    let listener = UnixListener::bind(&path).unwrap();
    let (silent, _stream) = tokio::join!(Offer::find(&path, "b"), listener.accept());
    assert!(matches!(silent, Err(HandoverError::Silent { .. })), "{silent:?}");
    let (other, ()) = tokio::join!(Offer::find(&path, "b"), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"here 7\n").await.unwrap();
        let _ = line(&mut stream).await;
    });
    assert!(matches!(other, Err(HandoverError::Unknown(_))), "{other:?}");
}

#[tokio::test]
async fn a_newer_agent_is_answered_in_the_form_that_is_known_here() {
    let stage = Stage::set().await;
    let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
    stream.write_all(b"octavo handover 9 newer\n").await.unwrap();
    assert_eq!(line(&mut stream).await.unwrap(), "here 1");
    for nonsense in
        ["GET / HTTP/1.1\n".to_owned(), "octavo handover x y\n".to_owned(), "x".repeat(300)]
    {
        let mut stream = UnixStream::connect(stage.socket()).await.unwrap();
        stream.write_all(nonsense.as_bytes()).await.unwrap();
        assert!(line(&mut stream).await.is_err(), "{nonsense}");
    }
    assert!(stage.folder.path().exists());
}

#[tokio::test]
async fn a_lock_that_is_let_go_is_free_whatever_a_child_has_of_it_until_it_is_executed() {
    let folder = tempfile::tempdir().unwrap();
    let lock = Lock::take(folder.path()).unwrap().unwrap();
    let flags = rustix::io::fcntl_getfd(&lock).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "no program has it");
    // What a forked child has: another descriptor of the same opening.
    let of_child = rustix::io::fcntl_dupfd_cloexec(&lock, 0).unwrap();
    assert!(Lock::take(folder.path()).unwrap().is_none());
    drop(lock);
    assert!(Lock::take(folder.path()).unwrap().is_some());
    drop(of_child);
}
