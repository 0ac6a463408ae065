//! `Series`: requests and denials over time.

use std::collections::BTreeMap;

use tower_throttle::Micros;

/// Steps by which a series becomes coarser, in seconds. Each divides the next.
const WIDTHS: [u64; 14] = [
    1, 2, 10, 30, 60, 120, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800,
];

/// As many bins as a picture has room for.
pub(crate) const MOST_BINS: u64 = 120;

/// What happened in bins of equal length, by their number since the epoch.
#[derive(Clone)]
pub(crate) struct Series {
    pub(crate) width_secs: u64,
    pub(crate) bins: BTreeMap<u64, Bin>,
    is_hourly: bool,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Bin {
    pub(crate) requests: u64,
    pub(crate) denied: u64,
}

impl Series {
    /// By the hour.
    pub(crate) fn hourly() -> Self {
        Self {
            width_secs: 3_600,
            bins: BTreeMap::new(),
            is_hourly: true,
        }
    }

    /// At most [`MOST_BINS`] bins, however long the log is.
    pub(crate) fn coarsening() -> Self {
        Self {
            width_secs: 1,
            bins: BTreeMap::new(),
            is_hourly: false,
        }
    }

    pub(crate) fn add(&mut self, at: Micros, is_denied: bool) {
        let bin = at.get() / 1_000_000 / self.width_secs;
        let bin = self.bins.entry(bin).or_default();
        bin.requests += 1;
        bin.denied += u64::from(is_denied);
        while !self.is_hourly
            && self
                .span()
                .is_some_and(|(first, end)| end - first > MOST_BINS)
        {
            self.widen();
        }
    }

    /// The number of the first bin, and of the one after the last.
    pub(crate) fn span(&self) -> Option<(u64, u64)> {
        let (first, _) = self.bins.first_key_value()?;
        let (last, _) = self.bins.last_key_value()?;
        Some((*first, last + 1))
    }

    /// Takes the next width.
    pub(crate) fn widen(&mut self) {
        let mut wider = WIDTHS.into_iter().filter(|width| *width > self.width_secs);
        let width = wider.next().unwrap_or(self.width_secs * 2);
        let factor = width / self.width_secs;
        let mut bins: BTreeMap<u64, Bin> = BTreeMap::new();
        for (number, bin) in &self.bins {
            let into = bins.entry(number / factor).or_default();
            into.requests += bin.requests;
            into.denied += bin.denied;
        }
        self.width_secs = width;
        self.bins = bins;
    }
}
