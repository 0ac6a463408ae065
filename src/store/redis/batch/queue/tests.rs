use super::*;
use crate::store::redis::settings::Waits;

const PATIENCE: Duration = Waits::USUAL.for_batches;
const US: Duration = Duration::from_micros(1);

/// An acquire of a key, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Acquire(u128, usize);

fn queue<R>(most_batches: usize) -> Queue<R> {
    Queue::new(most_batches, PATIENCE, CallId(0))
}

fn send<R>(queue: &mut Queue<R>, key: Option<u128>) -> Option<CallId> {
    queue.send_unbatched(key, 1, Instant::now(), Reach::Near)
}

fn wait(queue: &mut Queue<Acquire>, acquires: impl IntoIterator<Item = Acquire>) {
    for acquire in acquires {
        queue.wait(Waiting {
            key: Some(acquire.0),
            weight: 1,
            request: acquire,
        });
    }
}

/// Makes questions about several keys wait, of these weights.
fn wait_weighing(queue: &mut Queue<usize>, weights: impl IntoIterator<Item = usize>) {
    for (number, weight) in weights.into_iter().enumerate() {
        queue.wait(Waiting {
            key: None,
            weight,
            request: number,
        });
    }
}

fn flush<R>(queue: &mut Queue<R>) -> Option<(CallId, Vec<R>)> {
    let leaving = queue.flush(Instant::now(), Reach::Near)?;
    Some((leaving.call, leaving.requests))
}

fn flushed<R>(queue: &mut Queue<R>) -> (CallId, Vec<R>) {
    flush(queue).expect("a batch leaves")
}

mod near {
    use super::*;

    #[test]
    fn as_many_are_unbatched_as_batches_may_be_in_flight() {
        for (most_batches, expected) in [(1, 1), (2, 2), (4, 8)] {
            let mut queue = queue::<Acquire>(most_batches);
            let sent = (0..20).map_while(|key| send(&mut queue, Some(key)));
            assert_eq!(sent.count(), expected);
        }
    }

    #[test]
    fn at_most_two_are_unbatched_beside_a_batch_or_others_that_wait() {
        let mut queue = queue(4);
        let [first, _] = [1, 2].map(|key| send(&mut queue, Some(key)).unwrap());
        wait(&mut queue, [Acquire(1, 0)]);
        assert_eq!(send(&mut queue, Some(3)), None);
        queue.end(first);
        flushed(&mut queue);
        assert_eq!(send(&mut queue, Some(3)), None);
    }

    #[test]
    fn nobody_waits_for_every_unbatched_call() {
        let mut queue = queue(4);
        let calls = [1, 2, 3, 4].map(|key| send(&mut queue, Some(key)).unwrap());
        wait(&mut queue, [Acquire(1, 0), Acquire(5, 1)]);
        queue.end(calls[0]);
        assert_eq!(flushed(&mut queue).1, [Acquire(1, 0), Acquire(5, 1)]);
        wait(&mut queue, [Acquire(6, 2)]);
        assert_eq!(flush(&mut queue), None);
        for call in &calls[1..] {
            queue.end(*call);
        }
        assert_eq!(flushed(&mut queue).1, [Acquire(6, 2)]);
    }

    #[test]
    fn no_key_is_in_two_calls() {
        let mut queue = queue(2);
        let first = send(&mut queue, Some(1)).unwrap();
        assert!(send(&mut queue, Some(1)).is_none());
        wait(&mut queue, [Acquire(1, 0)]);
        assert_eq!(flush(&mut queue), None);
        let second = send(&mut queue, Some(2)).unwrap();
        let others = [Acquire(2, 1), Acquire(1, 2), Acquire(3, 3), Acquire(2, 4)];
        wait(&mut queue, others);
        queue.end(second);
        let (third, leaving) = flushed(&mut queue);
        assert_eq!(leaving, [Acquire(2, 1), Acquire(3, 3), Acquire(2, 4)]);
        queue.end(first);
        let (fourth, leaving) = flushed(&mut queue);
        assert_eq!(leaving, [Acquire(1, 0), Acquire(1, 2)]);
        queue.end(third);
        queue.end(fourth);
        assert!(queue.is_idle());
    }

    #[test]
    fn a_batch_has_half_of_all_where_two_may_be_in_flight() {
        let mut queue = queue(2);
        let [first, second] = [1, 2].map(|key| send(&mut queue, Some(key)).unwrap());
        wait(&mut queue, (10..30).map(|key| Acquire(key, 0)));
        queue.end(first);
        // The share is of the twenty and the one in flight.
        assert_eq!(flushed(&mut queue).1.len(), 11);
        queue.end(second);
        assert_eq!(flushed(&mut queue).1.len(), 9);
    }

    #[test]
    fn there_are_further_batches_if_each_is_large_enough() {
        for (waiting, expected) in [
            (47, vec![24, 23]),
            (71, vec![36, 35]),
            (72, vec![24, 24, 24]),
            (96, vec![24, 24, 24, 24]),
            (400, vec![100, 100, 100, 100]),
        ] {
            let mut queue = queue(4);
            wait(&mut queue, (0..waiting).map(|key| Acquire(key, 0)));
            let batches = std::iter::from_fn(|| flush(&mut queue));
            let sizes: Vec<_> = batches.map(|(_, leaving)| leaving.len()).collect();
            assert_eq!(sizes, expected);
        }
    }

    #[test]
    fn all_acquires_of_a_key_leave_together_and_in_their_order() {
        let mut queue = queue(2);
        let [first, _] = [1, 2].map(|key| send(&mut queue, Some(key)).unwrap());
        let acquires = (0..100).map(|number| Acquire(7 + (number % 2) as u128, number));
        wait(&mut queue, acquires.clone());
        queue.end(first);
        assert!(flushed(&mut queue).1.into_iter().eq(acquires));
    }

    #[test]
    fn requests_that_nobody_waits_for_take_no_place() {
        let mut queue = queue(1);
        let first = send(&mut queue, Some(1)).unwrap();
        wait(&mut queue, (10..410).map(|key| Acquire(key, 0)));
        let left = queue.remove_if(|Acquire(key, _)| *key < 210);
        assert_eq!(left.len(), 200);
        queue.end(first);
        assert_eq!(flushed(&mut queue).1.len(), 200);
    }

    #[test]
    fn no_more_than_256_leave_together() {
        let of_one_key = |number| Acquire(1, number);
        let of_many_keys = |number| Acquire(number as u128, number);
        for acquire in [of_one_key, of_many_keys] {
            let mut queue = queue(1);
            let first = send(&mut queue, Some(1)).unwrap();
            wait(&mut queue, (0..300).map(acquire));
            queue.end(first);
            let (second, leaving) = flushed(&mut queue);
            assert_eq!(leaving.len(), 256);
            assert_eq!(flush(&mut queue), None);
            queue.end(second);
            assert!(
                flushed(&mut queue)
                    .1
                    .into_iter()
                    .eq((256..300).map(acquire))
            );
        }
    }

    #[test]
    fn no_question_about_several_keys_overtakes_one_that_waits() {
        let mut queue = queue(2);
        let first = send(&mut queue, None).unwrap();
        wait_weighing(&mut queue, [2; 4]);
        // There might be a second call, but others came first.
        assert_eq!(send(&mut queue, None), None);
        assert_eq!(flushed(&mut queue).1, [0, 1, 2]);
        assert_eq!(flush(&mut queue), None);
        queue.end(first);
        assert_eq!(flushed(&mut queue).1, [3]);
    }

    #[test]
    fn a_batch_weighs_at_most_512_unless_one_question_is_heavier() {
        let mut queue = queue(1);
        let mut in_flight = send(&mut queue, None).unwrap();
        // The fifth one would have room with those before it.
        wait_weighing(&mut queue, [600, 200, 300, 20, 1, 491]);
        for expected in [&[0][..], &[1, 2], &[3, 4, 5]] {
            queue.end(in_flight);
            let leaving;
            (in_flight, leaving) = flushed(&mut queue);
            assert_eq!(leaving, expected);
        }
    }

    #[test]
    fn all_questions_about_a_key_weigh_as_much_as_one() {
        let mut queue = queue(1);
        for key in [1, 1, 1, 2] {
            queue.wait(Waiting {
                key: Some(key),
                weight: MOST_WEIGHT / 2,
                request: (),
            });
        }
        assert_eq!(flushed(&mut queue).1.len(), 4);
    }
}

mod far {
    use super::*;

    fn far(budget_us: u32, room_us: u32) -> Reach {
        Reach::Far {
            budget: US * budget_us,
            room: US * room_us,
        }
    }

    #[test]
    fn while_there_is_room_a_question_about_a_key_in_flight_is_sent() {
        let mut queue = queue::<Acquire>(4);
        let now = Instant::now();
        for _ in 0..20 {
            let sent = queue.send_unbatched(Some(1), 1, now, far(1_000, 500));
            assert!(sent.is_some());
        }
        let sent = queue.send_unbatched(Some(2), 1, now, far(1_000, 0));
        assert_eq!(sent, None, "it would be too much work for the server");
    }

    /// Nothing in flight would ever flush it.
    #[test]
    fn what_is_heavier_than_all_room_is_sent_once_nothing_is_in_flight() {
        let mut queue = queue::<Acquire>(4);
        let now = Instant::now();
        let sent = queue.send_unbatched(None, 500, now, far(100, 100));
        assert!(sent.is_some());
        assert_eq!(queue.send_unbatched(None, 500, now, far(100, 0)), None);
    }

    #[test]
    fn all_that_wait_leave_together_if_their_work_has_room() {
        let mut queue = queue(4);
        let now = Instant::now();
        queue.send_unbatched(Some(0), 1, now, far(1_000, 1_000));
        wait(&mut queue, (1..=200).map(|key| Acquire(key, 0)));
        assert!(queue.flush(now, far(1_000, 100)).is_none(), "hardly any");
        let some = queue.flush(now, far(1_000, 250)).unwrap().requests.len();
        assert!((1..200).contains(&some), "{some}");
        let others = queue.flush(now, far(1_000, 1_000)).unwrap().requests.len();
        assert_eq!(some + others, 200);
    }
}

#[test]
fn a_call_that_is_back_tells_whether_others_are() {
    let mut queue = queue::<Acquire>(2);
    let first = send(&mut queue, Some(1)).unwrap();
    assert_eq!(queue.reply(first, Instant::now()), Others::None);
    let second = send(&mut queue, Some(2)).unwrap();
    assert_eq!(queue.reply(second, Instant::now()), Others::Back);
    queue.end(first);
    assert_eq!(queue.reply(second, Instant::now()), Others::None);
    let third = send(&mut queue, Some(3)).unwrap();
    assert_eq!(queue.reply(second, Instant::now()), Others::InFlight);
    assert_eq!(queue.reply(third, Instant::now()), Others::Back);
}

#[test]
fn a_call_whose_reply_does_not_come_is_not_waited_for() {
    let mut queue = Queue::new(2, PATIENCE, CallId(7));
    let start = Instant::now();
    let first = queue
        .send_unbatched(Some(1), 1, start, Reach::Near)
        .unwrap();
    assert_eq!(queue.late_at(), None, "nobody waits");
    wait(&mut queue, [Acquire(1, 0), Acquire(1, 2)]);
    assert_eq!(queue.late_at(), Some(start + PATIENCE));
    assert_eq!(
        queue.stop_waiting_for_late(start + PATIENCE / 2),
        Duration::ZERO
    );
    assert_eq!(flush(&mut queue), None);
    let work = queue.work(first);
    assert_eq!(queue.stop_waiting_for_late(start + PATIENCE), work);
    let (second, leaving) = flushed(&mut queue);
    assert_eq!(leaving, [Acquire(1, 0), Acquire(1, 2)]);
    wait(&mut queue, [Acquire(1, 1)]);
    // A call that comes back late ends no other, and its work has ended before.
    assert_eq!(queue.end(first), Duration::ZERO);
    assert_eq!(flush(&mut queue), None);
    queue.end(second);
    flushed(&mut queue);
    assert!(queue.last_call() > CallId(9));
}

#[test]
fn a_batch_whose_reply_is_there_is_waited_for_anew() {
    let mut queue = queue(1);
    let start = Instant::now();
    wait(&mut queue, [Acquire(1, 0)]);
    let first = queue.flush(start, Reach::Near).unwrap().call;
    wait(&mut queue, [Acquire(1, 1)]);
    let back = start + PATIENCE / 2;
    assert_eq!(queue.reply(first, back), Others::None);
    queue.stop_waiting_for_late(start + PATIENCE);
    assert_eq!(queue.late_at(), Some(back + PATIENCE));
    queue.stop_waiting_for_late(back + PATIENCE);
    assert_eq!(queue.end(first), Duration::ZERO);
    assert_eq!(flushed(&mut queue).1, [Acquire(1, 1)]);
}
