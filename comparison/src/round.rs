//! Contestants take turns: in each round each of them runs once, so that whatever else the machine
//! does affects all alike. The median of the rounds' ratios is reported.

use std::time::Duration;

/// What one contestant did in one round.
#[derive(Clone, Copy, Debug, Default)]
pub struct Round {
    pub decisions: u64,
    pub allowed: u64,
    /// Of the decisions, those that came to nothing. Only an open loop goes on after one.
    pub failed: u64,
    pub elapsed: Duration,
    /// The processor time of this process, or of the part of it that is measured.
    pub client_cpu: Duration,
    /// The processor time of the Redis server.
    pub server_cpu: Duration,
    /// The seconds of one decision: the median, and what a tenth of them exceeds. Zero where they
    /// are not timed one by one.
    pub p50: f64,
    pub p90: f64,
}

impl Round {
    pub fn per_second(&self) -> f64 {
        self.decisions as f64 / self.elapsed.as_secs_f64()
    }

    /// Microseconds for one decision.
    pub fn client_cpu_us(&self) -> f64 {
        self.client_cpu.as_secs_f64() * 1e6 / self.decisions as f64
    }

    /// Microseconds for one decision.
    pub fn server_cpu_us(&self) -> f64 {
        self.server_cpu.as_secs_f64() * 1e6 / self.decisions as f64
    }

    pub fn share_allowed(&self) -> f64 {
        self.allowed as f64 / self.decisions as f64
    }
}

/// A number to report of a round.
pub type Figure = fn(&Round) -> f64;

/// How much to do for a measurement.
#[derive(Clone, Copy)]
pub struct Effort {
    pub rounds: usize,
    /// The length of a contestant's turn.
    pub lasting: Duration,
    /// The number of keys where there are many; all of them warm.
    pub keys: u64,
    /// The one delay to measure behind a network, in place of those of the table.
    pub each_way: Option<Duration>,
}

/// Something that can run for a round.
pub struct Contestant<'a> {
    pub name: &'static str,
    run: Box<dyn Fn() -> Round + 'a>,
}

impl<'a> Contestant<'a> {
    pub fn new(name: &'static str, run: impl Fn() -> Round + 'a) -> Self {
        Self {
            name,
            run: Box::new(run),
        }
    }
}

/// What all contestants did in all rounds.
pub struct Standings(Vec<(&'static str, Vec<Round>)>);

/// Lets each contestant run, in an order that rotates with each round.
pub fn take_turns(contestants: &[Contestant<'_>], effort: Effort) -> Standings {
    let mut standings: Vec<_> = contestants
        .iter()
        .map(|contestant| (contestant.name, Vec::new()))
        .collect();
    for round in 0..effort.rounds {
        for turn in 0..contestants.len() {
            let next = (round + turn) % contestants.len();
            standings[next].1.push((contestants[next].run)());
        }
    }
    for (name, rounds) in &standings {
        let told = |of: fn(&Round) -> f64| median(rounds.iter().map(of));
        eprintln!(
            "    {name:<46} {:>9.1} k/s, CPU us: client {:>6.2}, server {:>6.2}; allowed {:>5.1} %",
            told(Round::per_second) / 1e3,
            told(Round::client_cpu_us),
            told(Round::server_cpu_us),
            told(Round::share_allowed) * 100.0,
        );
        let (p50, p90) = (told(|round| round.p50), told(|round| round.p90));
        if p50 > 0.0 {
            eprintln!(
                "    {:<46} p50 {:>9.3} ms, p90 {:>9.3} ms; failed {}",
                "",
                p50 * 1e3,
                p90 * 1e3,
                rounds.iter().map(|round| round.failed).sum::<u64>(),
            );
        }
    }
    Standings(standings)
}

impl Standings {
    /// How many times as much of something one contestant has as the other; `None` if either did
    /// not run.
    pub fn ratio(&self, of: fn(&Round) -> f64, one: &str, other: &str) -> Option<f64> {
        let pairs = self.rounds(one)?.iter().zip(self.rounds(other)?);
        Some(median(pairs.map(|(one, other)| of(one) / of(other))))
    }

    /// The median of something.
    pub fn median(&self, of: fn(&Round) -> f64, name: &str) -> Option<f64> {
        Some(median(self.rounds(name)?.iter().map(of)))
    }

    /// How many decisions of all rounds failed.
    pub fn failed(&self) -> u64 {
        let rounds = self.0.iter().flat_map(|(_, rounds)| rounds);
        rounds.map(|round| round.failed).sum()
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|(name, _)| *name)
    }

    fn rounds(&self, name: &str) -> Option<&[Round]> {
        let (_, rounds) = self.0.iter().find(|(contestant, _)| *contestant == name)?;
        Some(rounds)
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    percentile(&mut values.collect::<Vec<_>>(), 0.5)
}

/// What this share of the values does not exceed.
pub fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let position = (values.len() as f64 * share) as usize;
    values.get(position).copied().unwrap_or(f64::NAN)
}
