//! Processor time: on a busy machine it tells more than elapsed time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Of this process.
pub fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Of this thread.
pub fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
