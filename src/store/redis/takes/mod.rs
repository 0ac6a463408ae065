//! Takes: the questions of nearly all requests. Each uses a script as lean as possible, alone or
//! together with others.
//!
//! A take is *plain* if one integer is its whole state, and its permits are taken at once and for
//! good, or not at all ([`PlainTake`](crate::algorithm::PlainTake)). A *run* is a sequence of equal
//! questions on a trip: one step of its script.
//!
//! | question | script in `lua/` | used for | its reply | another form is shown by |
//! |---|---|---|---|---|
//! | [`Take`] | `plain` | a plain take alone | what is owed | an [error](super::error::is_other_form) |
//! | | `plain_batch` | plain takes together | what is owed before each run of each key | -1 in its place |
//! | | `scaled_batch` | one or more takes that would be plain without a fraction in their rates: 30 a second | what is owed, in parts of a microsecond | -1 in its place |
//! | | `queue` | takes together, by one algorithm, that are not plain; in a cluster of one key | verdicts, as few as tell all of a run | none: it reads all |
//! | [`PlainPack`]: plain takes in one key | `plain_pack` | one alone, if all its takes depend on each other | what each take owes | -1 in place of all |
//! | | `plain_pack_batch` | packs together, and any other one alone | what each owes, or the whole pack, before each run of each key | -1 in its place |
//! | [`PlainSeveral`]: plain takes of several keys | `plain_several` | always | what each take of each run owes before it | -1 in its place |
//! | [`AnyTakes`]: all other takes except of leases, and looks | the composed script | always | a verdict of each check | none: it reads all |
//!
//! All other questions, and a single take that is not plain, use the *composed script*, which can
//! ask everything: `script` composes it from the parts of the algorithms involved, and `reply`
//! reads its reply.
//!
//! A key has *another form* if its script cannot read it: its state has a fraction, or is in a pack
//! or not, unlike the script expects, as other rates of its policy have left it; or its value is
//! not ours. Then nothing was taken. The question is asked once more by the composed script, which
//! reads all forms and says what is wrong with a foreign value.

mod any_takes;
mod by_key;
mod msgpack;
mod names;
mod plain;
mod plain_batch;
mod plain_pack;
mod plain_several;
mod plain_takes;
mod queue;
mod take;

pub(super) use any_takes::AnyTakes;
pub(super) use plain_pack::PlainPack;
pub(super) use plain_several::PlainSeveral;
pub(super) use take::Take;

/// How many plain takes one counts for that is not plain. It takes the server about as long as two
/// to five. There are few trips at a time, which should take along as many as possible, while one
/// of 128 of these holds up everybody else for about a millisecond, and for some more where windows
/// have a thousand slices.
const WEIGHT_UNLESS_PLAIN: usize = 4;
/// The same for a take that would be plain if its rate needed no fraction.
const WEIGHT_IF_SCALED: usize = 2;
/// With more trips, client and server wait for each other less. For questions that keep the server
/// busier, the smaller trips then cost more than that saves.
const MOST_TRIPS_IF_PLAIN: usize = 4;

/// The scripts that are complete by themselves.
#[cfg(test)]
pub(super) const TEXTS: [&str; 6] = [
    plain::TEXT,
    plain_batch::TEXT,
    plain_batch::SCALED_TEXT,
    plain_pack::TEXT,
    plain_pack::BATCH_TEXT,
    plain_several::TEXT,
];
