//! The two kinds of runtime that services have.

use tokio::runtime::{Builder, Runtime};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    CurrentThread,
    TwoWorkers,
}

impl Flavor {
    pub const ALL: [Self; 2] = [Self::CurrentThread, Self::TwoWorkers];

    pub fn name(self) -> &'static str {
        match self {
            Self::CurrentThread => "current_thread",
            Self::TwoWorkers => "two workers",
        }
    }

    pub fn runtime(self) -> Runtime {
        let mut builder = match self {
            Self::CurrentThread => Builder::new_current_thread(),
            Self::TwoWorkers => {
                let mut builder = Builder::new_multi_thread();
                builder.worker_threads(2);
                builder
            }
        };
        builder.enable_all().build().expect("a runtime")
    }
}
