//! Why a decision denies, in words.

use super::{Decision, Outcome};

impl Decision {
    /// Why it denies, for clients.
    pub(crate) fn reason(&self) -> &'static str {
        match self.outcome {
            Outcome::NeverFits if self.limit == 0 => "the quota admits nothing",
            Outcome::NeverFits => "the request costs more than the quota can ever hold",
            Outcome::FailedClosed(_) => "the quota cannot be checked at the moment",
            Outcome::Banned => "the quota was exceeded too often",
            Outcome::Refused => "requests of this client are refused",
            _ if self.counts_in_time() => "the quota is used up",
            _ => "the limit of concurrent requests is reached",
        }
    }

    /// Whether permits come back with time, rather than when their holders end.
    pub(crate) fn counts_in_time(&self) -> bool {
        !self.window.is_zero()
    }
}
