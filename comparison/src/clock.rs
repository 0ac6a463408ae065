//! Processor time, which tells more than elapsed time on a busy machine; and sleep that ends on time.

use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Of this process.
pub fn process_cpu() -> Duration {
    read(ClockId::ProcessCPUTime)
}

/// Of this thread.
pub fn thread_cpu() -> Duration {
    read(ClockId::ThreadCPUTime)
}

/// Lets this thread sleep as precisely as the system can: by default Linux may wake it 50 us late, to
/// wake several at once.
pub fn wake_on_time() {
    #[cfg(target_os = "linux")]
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).expect("a thread");
}

pub fn sleep_until(due: Instant) {
    thread::sleep(due.saturating_duration_since(Instant::now()));
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
