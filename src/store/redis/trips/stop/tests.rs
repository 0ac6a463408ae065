use super::*;
use crate::store::redis::waits::Waits;

const PATIENCE: Duration = Waits::USUAL.for_trips;

/// A take of a key, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Take(u128, usize);

impl Passenger for Take {
    fn key(&self) -> Option<u128> {
        Some(self.0)
    }

    fn weight(&self) -> usize {
        1
    }
}

fn alone<P: Passenger>(stop: &mut Stop<P>, key: Option<u128>) -> Option<TripNumber> {
    stop.go_alone(key, Instant::now())
}

fn waiting(stop: &mut Stop<Take>, takes: impl IntoIterator<Item = Take>) {
    takes.into_iter().for_each(|take| {
        stop.wait(take);
    });
}

fn depart<P: Passenger>(stop: &mut Stop<P>) -> Option<(TripNumber, Vec<P>)> {
    stop.depart(Instant::now())
}

fn departing(stop: &mut Stop<Take>) -> (TripNumber, Vec<Take>) {
    depart(stop).expect("somebody goes")
}

#[test]
fn as_many_go_alone_as_trips_may_be_under_way() {
    for (most_trips, expected) in [(1, 1), (2, 2), (4, 8)] {
        let mut stop = Stop::<Take>::new(most_trips, PATIENCE, TripNumber(0));
        let gone = (0..20).map_while(|key| alone(&mut stop, Some(key)));
        assert_eq!(gone.count(), expected);
    }
}

#[test]
fn at_most_two_go_alone_beside_waiters_or_a_shared_trip() {
    let mut stop = Stop::new(4, PATIENCE, TripNumber(0));
    let [first, _] = [1, 2].map(|key| alone(&mut stop, Some(key)).unwrap());
    waiting(&mut stop, [Take(1, 0)]);
    assert_eq!(alone(&mut stop, Some(3)), None);
    stop.end(first);
    departing(&mut stop);
    assert_eq!(alone(&mut stop, Some(3)), None);
}

#[test]
fn nobody_waits_for_every_lone_trip() {
    let mut stop = Stop::new(4, PATIENCE, TripNumber(0));
    let alone = [1, 2, 3, 4].map(|key| alone(&mut stop, Some(key)).unwrap());
    waiting(&mut stop, [Take(1, 0), Take(5, 1)]);
    stop.end(alone[0]);
    assert_eq!(departing(&mut stop).1, [Take(1, 0), Take(5, 1)]);
    waiting(&mut stop, [Take(6, 2)]);
    assert_eq!(depart(&mut stop), None);
    alone[1..].iter().for_each(|trip| stop.end(*trip));
    assert_eq!(departing(&mut stop).1, [Take(6, 2)]);
}

#[test]
fn no_key_is_on_two_trips() {
    let mut stop = Stop::new(2, PATIENCE, TripNumber(0));
    let first = alone(&mut stop, Some(1)).unwrap();
    assert!(alone(&mut stop, Some(1)).is_none());
    waiting(&mut stop, [Take(1, 0)]);
    assert_eq!(depart(&mut stop), None);
    let second = alone(&mut stop, Some(2)).unwrap();
    waiting(&mut stop, [Take(2, 1), Take(1, 2), Take(3, 3), Take(2, 4)]);
    stop.end(second);
    let (third, going) = departing(&mut stop);
    assert_eq!(going, [Take(2, 1), Take(3, 3), Take(2, 4)]);
    stop.end(first);
    let (fourth, going) = departing(&mut stop);
    assert_eq!(going, [Take(1, 0), Take(1, 2)]);
    [third, fourth].into_iter().for_each(|trip| stop.end(trip));
    assert!(stop.is_deserted());
}

#[test]
fn half_of_those_there_are_go_where_there_may_be_two_trips() {
    let mut stop = Stop::new(2, PATIENCE, TripNumber(0));
    let [first, second] = [1, 2].map(|key| alone(&mut stop, Some(key)).unwrap());
    waiting(&mut stop, (10..30).map(|key| Take(key, 0)));
    stop.end(first);
    // The share is of the twenty and the one in flight.
    let (_, going) = departing(&mut stop);
    assert_eq!(going.len(), 11);
    stop.end(second);
    assert_eq!(departing(&mut stop).1.len(), 9);
}

#[test]
fn there_are_further_trips_if_enough_go_on_each() {
    for (waiting_for_it, expected) in [
        (47, vec![24, 23]),
        (71, vec![36, 35]),
        (72, vec![24, 24, 24]),
        (96, vec![24, 24, 24, 24]),
        (400, vec![100, 100, 100, 100]),
    ] {
        let mut stop = Stop::new(4, PATIENCE, TripNumber(0));
        waiting(&mut stop, (0..waiting_for_it).map(|key| Take(key, 0)));
        let going = std::iter::from_fn(|| depart(&mut stop));
        let going: Vec<_> = going.map(|(_, going)| going.len()).collect();
        assert_eq!(going, expected);
    }
}

#[test]
fn all_takes_of_a_key_go_together_and_in_their_order() {
    let mut stop = Stop::new(2, PATIENCE, TripNumber(0));
    let [first, _] = [1, 2].map(|key| alone(&mut stop, Some(key)).unwrap());
    waiting(
        &mut stop,
        (0..100).map(|number| Take(7 + (number % 2) as u128, number)),
    );
    stop.end(first);
    let (_, going) = departing(&mut stop);
    assert_eq!(
        going,
        (0..100)
            .map(|number| Take(7 + (number % 2) as u128, number))
            .collect::<Vec<_>>()
    );
}

#[test]
fn passengers_who_have_left_take_no_place() {
    let mut stop = Stop::new(1, PATIENCE, TripNumber(0));
    let alone = alone(&mut stop, Some(1)).unwrap();
    waiting(&mut stop, (10..410).map(|key| Take(key, 0)));
    let left = stop.without(|Take(key, _)| *key < 210);
    assert_eq!(left.len(), 200);
    stop.end(alone);
    assert_eq!(departing(&mut stop).1.len(), 200);
}

/// All of them, however many have left.
#[test]
fn passengers_who_have_left_are_not_looked_for_if_all_go_together() {
    let mut stop = Stop::new(1, PATIENCE, TripNumber(0));
    waiting(&mut stop, (10..50).map(|key| Take(key, 0)));
    assert!(stop.without(|_| true).is_empty());
    assert_eq!(departing(&mut stop).1.len(), 40);
}

#[test]
fn no_more_than_256_go_together() {
    let of_one_key = |number| Take(1, number);
    let of_many_keys = |number| Take(number as u128, number);
    for take in [of_one_key, of_many_keys] {
        let mut stop = Stop::new(1, PATIENCE, TripNumber(0));
        let first = alone(&mut stop, Some(1)).unwrap();
        waiting(&mut stop, (0..300).map(take));
        stop.end(first);
        let (second, going) = departing(&mut stop);
        assert_eq!(going.len(), 256);
        assert_eq!(depart(&mut stop), None);
        stop.end(second);
        let expected: Vec<_> = (256..300).map(take).collect();
        assert_eq!(departing(&mut stop).1, expected);
    }
}

#[test]
fn a_trip_that_is_back_looks_whether_the_other_is_late() {
    let mut stop = Stop::<Take>::new(2, PATIENCE, TripNumber(0));
    let first = alone(&mut stop, Some(1)).unwrap();
    assert_eq!(stop.arrive(first, Instant::now()), Others::None);
    let second = alone(&mut stop, Some(2)).unwrap();
    assert_eq!(stop.arrive(second, Instant::now()), Others::Back);
    stop.end(first);
    assert_eq!(stop.arrive(second, Instant::now()), Others::None);
    let third = alone(&mut stop, Some(3)).unwrap();
    assert_eq!(stop.arrive(second, Instant::now()), Others::UnderWay);
    assert_eq!(stop.arrive(third, Instant::now()), Others::Back);
}

/// A question of this weight, and its number.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Several(usize, usize);

impl Passenger for Several {
    fn key(&self) -> Option<u128> {
        None
    }

    fn weight(&self) -> usize {
        self.0
    }
}

fn numbers((_, going): (TripNumber, Vec<Several>)) -> Vec<usize> {
    going.into_iter().map(|Several(_, number)| number).collect()
}

#[test]
fn no_question_about_several_keys_overtakes_one_that_waits() {
    let mut stop = Stop::new(2, PATIENCE, TripNumber(0));
    let first = alone(&mut stop, None).unwrap();
    for number in 0..4 {
        stop.wait(Several(2, number));
    }
    // There might be a second trip, but those who wait came first.
    assert_eq!(alone(&mut stop, None), None);
    assert_eq!(numbers(depart(&mut stop).unwrap()), [0, 1, 2]);
    assert_eq!(depart(&mut stop), None);
    stop.end(first);
    assert_eq!(numbers(depart(&mut stop).unwrap()), [3]);
}

#[test]
fn a_trip_weighs_at_most_512_unless_one_question_is_heavier() {
    let mut stop = Stop::new(1, PATIENCE, TripNumber(0));
    let mut under_way = alone(&mut stop, None).unwrap();
    let takes = [600, 200, 300, 20, 1, 491];
    let takes = takes.into_iter().zip(0..);
    for (takes, number) in takes {
        stop.wait(Several(takes, number));
    }
    // The fifth one would have room with those before it.
    for expected in [&[0][..], &[1, 2], &[3, 4, 5]] {
        stop.end(under_way);
        let (number, going) = depart(&mut stop).unwrap();
        assert_eq!(numbers((number, going)), expected);
        under_way = number;
    }
}

/// A question of this key and weight.
#[derive(Debug, PartialEq, Eq)]
struct Heavy(u128, usize);

impl Passenger for Heavy {
    fn key(&self) -> Option<u128> {
        Some(self.0)
    }

    fn weight(&self) -> usize {
        self.1
    }
}

#[test]
fn all_questions_about_a_key_weigh_as_much_as_one() {
    let mut stop = Stop::new(1, PATIENCE, TripNumber(0));
    for key in [1, 1, 1, 2] {
        stop.wait(Heavy(key, MOST_WEIGHT / 2));
    }
    assert_eq!(depart(&mut stop).map(|(_, going)| going.len()), Some(4));
}

#[test]
fn a_lone_trip_that_does_not_come_back_is_not_waited_for() {
    let mut stop = Stop::new(2, PATIENCE, TripNumber(7));
    let begun = Instant::now();
    let first = stop.go_alone(Some(1), begun).unwrap();
    assert_eq!(stop.wait(Take(1, 0)), Some(begun + PATIENCE));
    assert_eq!(stop.wait(Take(1, 2)), Some(begun + PATIENCE));
    assert!(!stop.leave_behind(begun + PATIENCE / 2));
    assert_eq!(depart(&mut stop), None);
    assert!(stop.leave_behind(begun + PATIENCE));
    let (second, going) = departing(&mut stop);
    assert_eq!(going, [Take(1, 0), Take(1, 2)]);
    stop.wait(Take(1, 1));
    // A trip that returns late ends nobody else's.
    stop.end(first);
    assert_eq!(depart(&mut stop), None);
    stop.end(second);
    departing(&mut stop);
    assert!(stop.last_number() > TripNumber(9));
}

#[test]
fn a_late_shared_trip_counts_again_once_it_is_back() {
    let mut stop = Stop::new(1, PATIENCE, TripNumber(0));
    let begun = Instant::now();
    waiting(&mut stop, [Take(1, 0)]);
    let (first, _) = stop.depart(begun).unwrap();
    waiting(&mut stop, [Take(1, 1), Take(1, 2)]);
    assert!(!stop.leave_behind(begun + PATIENCE / 2));
    assert!(stop.leave_behind(begun + PATIENCE));
    let (second, going) = stop.depart(begun).unwrap();
    assert_eq!(going, [Take(1, 1), Take(1, 2)]);
    stop.end(first);
    let back = begun + PATIENCE / 2;
    assert_eq!(stop.arrive(second, back), Others::None);
    assert!(!stop.leave_behind(begun + PATIENCE));
    assert!(stop.leave_behind(back + PATIENCE));
    assert!(stop.is_deserted());
}

#[test]
fn the_documentation_of_the_store_names_the_bounds() {
    let lines = include_str!("../../mod.rs").lines();
    let lines: Vec<_> = lines
        .map(|line| line.trim_start_matches(['/', ' ']))
        .collect();
    // However its lines are broken.
    let text = lines.join(" ");
    for says in [
        format!("Up to {MOST_TOGETHER} share a trip"),
        format!("up to {MOST_WEIGHT} verdicts"),
        format!("up to {MOST_ALONE} requests go alone"),
        format!("if each has {ENOUGH_FOR_FURTHER} requests"),
        format!("wait at most {} ms for a trip", PATIENCE.as_millis()),
    ] {
        assert!(text.contains(&says), "{says:?}");
    }
}
