//! Penalty box: modelled as a list of all denials, after the check that it guards.

use super::*;
use crate::time::MINUTE;

/// A limit and its penalty, on one key.
#[derive(Clone)]
pub(super) struct Guarded {
    pub(super) guard: Subject,
    pub(super) penalty: Subject,
}

impl Guarded {
    pub(super) fn of(limit: Limit, penalty: &Penalty) -> Self {
        let guard = Subject::of(limit);
        let algorithm = Algorithm::try_from(penalty).unwrap();
        let state = algorithm.untouched();
        let penalty = Subject {
            algorithm,
            state,
            ..guard.clone()
        };
        Self { guard, penalty }
    }

    pub(super) fn act(&mut self, action: Action) -> [Decision; 2] {
        let now = Micros::new(self.guard.now);
        let both = [&mut self.guard, &mut self.penalty];
        let asked = both.each_ref().map(|subject| subject.algorithm);
        let asked = || {
            asked
                .iter()
                .map(|algorithm| Ask::enforced(algorithm, &action))
        };
        let mut readings = both
            .each_ref()
            .map(|subject| subject.algorithm.read(&subject.state, now, &action));
        for (position, committed) in committed(asked(), &readings).enumerate() {
            if committed || !readings[position].fits {
                let Subject {
                    algorithm, state, ..
                } = &mut *both[position];
                readings[position] = algorithm.commit(state, now, &action, readings[position]);
            }
        }
        let decisions = decide(asked(), &readings);
        [decisions[0], decisions[1]]
    }

    pub(super) fn ask(&mut self) -> Came {
        match self.act(Action::acquire(1)) {
            [_, penalty] if penalty.outcome() == Outcome::Banned => {
                Came::Banned(us(penalty.banned_for().unwrap()))
            }
            [guard, _] if guard.is_allowed() => Came::Through,
            [_, penalty] => Came::Denied {
                brought: us(penalty.reset_after()),
            },
        }
    }
}

/// How a request came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Came {
    Through,
    /// By the limit; and how long a ban this has caused, if it has.
    Denied {
        brought: u64,
    },
    /// For this long.
    Banned(u64),
}

/// Every denial that counted, and the last ban.
struct ModelBox {
    terms: Terms,
    denials: Vec<u64>,
    banned_until: u64,
    ban: u64,
}

#[derive(Clone, Copy, Debug)]
struct Terms {
    denials: usize,
    within: Duration,
    ban: Duration,
    longest: Option<Duration>,
}

impl Terms {
    fn penalty(&self) -> Penalty {
        let penalty = Penalty::after(self.denials as u32, self.within, self.ban);
        match self.longest {
            Some(longest) => penalty.doubling_up_to(longest),
            None => penalty,
        }
    }
}

impl ModelBox {
    fn ask(&mut self, now: u64, guard_fits: bool) -> Came {
        if now < self.banned_until {
            return Came::Banned(self.banned_until - now);
        }
        if guard_fits {
            return Came::Through;
        }
        self.denials.push(now);
        let within = us(self.terms.within);
        let recent = self.denials.iter().filter(|at| *at + within > now);
        if recent.count() < self.terms.denials {
            return Came::Denied { brought: 0 };
        }
        self.denials.clear();
        let longest = us(self.terms.longest.unwrap_or(self.terms.ban));
        let is_remembered = self.ban > 0 && now < self.banned_until + longest;
        self.ban = if is_remembered {
            longest.min(2 * self.ban)
        } else {
            us(self.terms.ban)
        };
        self.banned_until = now + self.ban;
        Came::Denied { brought: self.ban }
    }
}

fn terms() -> impl Strategy<Value = Terms> {
    let time = || prop_oneof![Just(Duration::from_millis(1)), Just(SECOND), Just(MINUTE)];
    (1_usize..6, time(), time(), prop::option::of(1_u32..9)).prop_map(
        |(denials, within, ban, times)| Terms {
            denials,
            within,
            ban,
            // Also such that the last doubling is cut short.
            longest: times.map(|times| times * ban),
        },
    )
}

fn requests() -> impl Strategy<Value = Vec<u64>> {
    let pause = prop_oneof![
        4 => Just(0_u64),
        2 => 1_u64..2_000,
        2 => 1_u64..2_000_000,
        1 => 1_u64..200_000_000,
    ];
    prop::collection::vec(pause, 1..200)
}

/// Denies nearly everything, and says exactly when not.
fn strict() -> Limit {
    Limit::sliding_log(1, MINUTE)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_penalty_does_what_a_list_of_all_denials_does(
        terms in terms(), requests in requests(),
    ) {
        let mut guarded = Guarded::of(strict(), &terms.penalty());
        let mut model = ModelBox { terms, denials: Vec::new(), banned_until: 0, ban: 0 };
        for pause in requests {
            guarded.guard.now += pause;
            let now = guarded.guard.now;
            let guard_fits = guarded.guard.would(now, 1);
            prop_assert_eq!(guarded.ask(), model.ask(now, guard_fits));
        }
    }

    /// Nothing that a banned subject does extends a ban or takes permits.
    #[test]
    fn hammering_while_banned_changes_nothing(
        terms in terms(), requests in requests(), hammering in requests(),
    ) {
        let mut guarded = Guarded::of(strict(), &terms.penalty());
        for pause in requests {
            guarded.guard.now += pause;
            let Came::Denied { brought: brought @ 1.. } = guarded.ask() else { continue };
            let mut banned = guarded.clone();
            let until = banned.guard.now + brought;
            for pause in &hammering {
                banned.guard.now = (banned.guard.now + pause).min(until - 1);
                prop_assert_eq!(banned.ask(), Came::Banned(until - banned.guard.now));
            }
            prop_assert_eq!(banned.guard.remembered(), guarded.guard.remembered());
            prop_assert_eq!(banned.penalty.remembered(), guarded.penalty.remembered());
            banned.guard.now = until;
            prop_assert!(!matches!(banned.ask(), Came::Banned(_)));
        }
    }

    /// From its expiry on, and not before, a box behaves like one that was never used.
    #[test]
    fn a_penalty_may_be_forgotten_when_it_is_untouched_and_not_before(
        terms in terms(), requests in requests(),
    ) {
        let mut guarded = Guarded::of(strict(), &terms.penalty());
        let algorithm = guarded.penalty.algorithm;
        for pause in requests {
            guarded.guard.now += pause;
            guarded.ask();
            let state = &guarded.penalty.state;
            let is_untouched = |at: u64, action: Action| {
                let read = |state| algorithm.read(state, Micros::new(at), &action);
                read(state) == read(&algorithm.untouched())
            };
            let expires = state.expires_at().get();
            for action in [Action::acquire(1), Action::look()] {
                prop_assert!(is_untouched(expires, action));
                prop_assert!(expires == 0 || !is_untouched(expires - 1, action));
            }
        }
    }

    #[test]
    fn a_clock_that_steps_back_never_ends_a_ban(
        terms in terms(), requests in requests(), back in 1_u64..10_000_000,
    ) {
        let mut guarded = Guarded::of(strict(), &terms.penalty());
        for pause in requests {
            guarded.guard.now += pause;
            guarded.ask();
            let now = guarded.guard.now;
            let is_banned = |now: u64| !guarded.penalty.would(now, 1);
            prop_assert!(!is_banned(now) || is_banned(now - back));
        }
    }
}
