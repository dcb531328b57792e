//! Placeholder until merge.
use crate::shared::outcome::OutcomeReceiver;
use crate::shared::snapshot::SnapshotStore;
use std::sync::Arc;
/// x
pub struct Handle(std::sync::mpsc::Sender<()>, std::thread::JoinHandle<()>);
impl Handle {
    /// x
    pub fn is_finished(&self) -> bool {
        self.1.is_finished()
    }
    /// x
    pub fn stop(self) {}
}
/// x
pub fn start(store: Arc<SnapshotStore>, receivers: Vec<OutcomeReceiver>) -> std::io::Result<Handle> {
    let (sender, stop) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("control".into()).spawn(move || {
        let _store = store;
        while stop.recv_timeout(std::time::Duration::from_millis(50)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
        {
            for r in &receivers {
                r.drain().for_each(drop);
            }
        }
    })?;
    Ok(Handle(sender, thread))
}
