//! Threads that have a runtime each: workers and control.
//!
//! A start waits until the runtime is there, so that a system which has no descriptors left for it is an error of the start
//! and not the death of a thread later. What the thread does then is no business of this module.

use std::io;
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use tokio::runtime::LocalRuntime;

/// Starts the thread `name`, makes its runtime there and lets `work` have it.
///
/// # Errors
/// Where the thread or its runtime can't be made.
pub fn start(
    name: &str,
    make: impl FnOnce() -> io::Result<LocalRuntime> + Send + 'static,
    work: impl FnOnce(&LocalRuntime) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (made_in, made) = sync_channel(1);
    let thread = Builder::new().name(name.to_owned()).spawn(move || {
        let (runtime, result) = match make() {
            Ok(runtime) => (Some(runtime), Ok(())),
            Err(error) => (None, Err(error)),
        };
        // Whoever started the thread waits for this.
        let _ = made_in.send(result);
        if let Some(runtime) = runtime {
            work(&runtime);
        }
    })?;
    // The thread answers in any case: even one that panics drops its end.
    made.recv().unwrap_or_else(|_| Err(io::Error::other("the thread died as it started")))?;
    Ok(thread)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::runtime::{self, LocalOptions};

    use super::*;

    fn make() -> io::Result<LocalRuntime> {
        runtime::Builder::new_current_thread().build_local(LocalOptions::default())
    }

    #[test]
    fn a_thread_works_on_its_runtime_under_its_name() {
        let (told, names) = channel();
        let work = move |runtime: &LocalRuntime| {
            let name = runtime.block_on(async { std::thread::current().name().map(str::to_owned) });
            told.send(name).unwrap();
        };
        start("somebody", make, work).unwrap().join().unwrap();
        assert_eq!(names.recv().unwrap().as_deref(), Some("somebody"));
    }

    #[test]
    fn a_runtime_that_can_not_be_made_is_an_error_of_the_start() {
        let refuse = || Err(io::Error::from_raw_os_error(24));
        let error = start("nobody", refuse, |_| panic!("there is nothing to work on")).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(24));
        let die = || -> io::Result<LocalRuntime> { panic!("no runtime") };
        assert!(start("nobody", die, |_| {}).is_err());
    }
}
