use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use octavo_gpu::{
    Driver, DriverError, DriverVersions, EventStream, Gpu, GpuHealth, GpuProcess, UnreadableGpu,
};

use super::{Answer, HANGS, Truth};
use crate::monitor::OpenDriver;

/// A driver whose lists come when the test says so.
struct SlowDriver {
    lists: Mutex<Receiver<Vec<GpuProcess>>>,
    asked: Sender<String>,
}

impl Driver for SlowDriver {
    fn versions(&self) -> Result<DriverVersions, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn gpus(&self) -> Result<Vec<Result<Gpu, UnreadableGpu>>, DriverError> {
        Ok(Vec::new())
    }

    fn health(&self, _: &str) -> Result<GpuHealth, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn events(&self) -> Result<Box<dyn EventStream>, DriverError> {
        Err(DriverError::NotFound { call: "none" })
    }

    fn processes(&self, uuid: &str) -> Result<Vec<GpuProcess>, DriverError> {
        self.asked.send(uuid.to_owned()).unwrap();
        Ok(self.lists.lock().unwrap().recv().unwrap())
    }
}

#[tokio::test]
async fn a_call_that_hangs_is_waited_for_and_no_other_is_begun() {
    let (answer, lists) = channel();
    let (asked, calls) = channel();
    let driver: Arc<dyn Driver> = Arc::new(SlowDriver { lists: Mutex::new(lists), asked });
    let open = OpenDriver::of(&driver);
    let mut truth = Truth::default();
    let gpus = || vec!["GPU-1".to_owned()];
    assert!(matches!(truth.ask(&open, gpus()).await, Answer::Waiting { is_hanging: false }));
    if let Some((_, since)) = &mut truth.running {
        *since -= HANGS;
    }
    assert!(matches!(truth.ask(&open, gpus()).await, Answer::Waiting { is_hanging: true }));
    assert_eq!(calls.try_iter().count(), 1);
    let process = GpuProcess { pid: 5, used_bytes: Some(6) };
    answer.send(vec![process]).unwrap();
    let Answer::Told(told) = truth.ask(&open, gpus()).await else { panic!("no answer") };
    assert_eq!(told["GPU-1"], Ok(vec![process]));
    // The next look asks anew.
    answer.send(Vec::new()).unwrap();
    assert!(matches!(truth.ask(&open, gpus()).await, Answer::Told(_)));
    assert_eq!(calls.try_iter().count(), 1);
}

#[tokio::test]
async fn a_driver_that_is_closed_is_not_asked() {
    let mut truth = Truth::default();
    let answer = truth.ask(&OpenDriver::default(), vec!["GPU-1".to_owned()]).await;
    assert!(matches!(answer, Answer::Closed));
}
