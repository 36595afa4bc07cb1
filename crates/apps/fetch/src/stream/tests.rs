//! Streams from a server that answers after a fixed time, at once.

use std::collections::BTreeMap;

use polypath_units::{BitRate, Duration, Instant};

use super::adaptation::AdaptationPolicy;
use super::*;
use crate::schedule::Ranges;

const SEGMENT: Duration = Duration::from_secs(2);
const BUFFERING: Buffering =
    Buffering { capacity: Duration::from_secs(6), startup: SEGMENT, after_stall: SEGMENT };

fn stream(sizing: Sizing, segments: u64, sizes: Option<[u64; 2]>) -> (Stream, [PathId; 2]) {
    let adaptation = "measured-speed".parse::<AdaptationPolicy>().expect("a policy").build();
    let mut stream = Stream::new(at(0), sizing, adaptation, BUFFERING);
    for _ in 0..segments {
        stream.push_unit(Unit {
            duration: SEGMENT,
            rates: [400, 1600].map(BitRate::from_kbps).into(),
            sizes: sizes.map_or(Box::default(), |sizes| sizes.map(Some).into()),
        });
    }
    stream.handle_end_of_units();
    let paths = [stream.add_path(at(0)), stream.add_path(at(0))];
    (stream, paths)
}

fn at(millis: u64) -> Instant {
    Instant::from_secs(50) + Duration::from_millis(millis)
}

/// Fetches all of it: each request is answered after 20 ms. Gives what came of each unit, and when the player began.
fn fetch(mut stream: Stream, paths: [PathId; 2], length: impl Fn(u64, usize) -> u64) -> Vec<(usize, u64)> {
    let (mut complete, mut pieces) = (Vec::new(), BTreeMap::<u64, Ranges>::new());
    let mut asked = Vec::new();
    for millis in 0..60_000 {
        let now = at(millis);
        for (id, wanted) in std::mem::take(&mut asked) {
            let (due, path): (u64, PathId) = id;
            let wanted: Wanted = wanted;
            if due > millis {
                asked.push((id, wanted));
                continue;
            }
            let total = length(wanted.unit.0, wanted.quality);
            let last = wanted.range.last.expect("a stream asks for ranges").min(total - 1);
            if wanted.range.first >= total {
                stream.handle_no_such_range(now, wanted.id, Some(total)).expect("the same length");
                continue;
            }
            stream.handle_head(now, wanted.id, Some(total)).expect("the same length");
            let bytes = last + 1 - wanted.range.first;
            let arrived = stream.handle_bytes(now, wanted.id, bytes).expect("it was asked for");
            assert_eq!(arrived.range, wanted.range.first..last + 1);
            pieces.entry(arrived.unit.0).or_default().insert(arrived.range);
            stream.handle_end(now, wanted.id);
            if arrived.rest == Rest::Superfluous {
                stream.handle_opened(now, path);
            }
        }
        stream.handle_timeout(now);
        while let Some(gone) = stream.poll_gone(now) {
            stream.handle_opened(now, gone);
        }
        for path in paths {
            while let Some(wanted) = stream.poll_request(now, path) {
                let limit = length(wanted.unit.0, wanted.quality).max(1_000_000);
                assert!(wanted.range.last.is_some_and(|last| last < limit), "{wanted:?}");
                asked.push(((millis + 20, path), wanted));
            }
        }
        while let Some(event) = stream.poll_event() {
            if let Event::Complete { unit, quality, bytes } = event {
                assert_eq!((unit.0, bytes), (complete.len() as u64, length(unit.0, quality)));
                assert!(pieces.remove(&unit.0).is_some_and(|there| there.contains(&(0..bytes))), "{unit:?}");
                complete.push((quality, millis));
            }
        }
        if stream.is_complete() {
            break;
        }
    }
    assert!(stream.is_complete());
    complete
}

#[test]
fn segments_come_in_order_whether_their_lengths_are_known_or_not() {
    for sizing in [
        Sizing::in_order(),
        Sizing::Fixed { segment_bytes: 30_000, pipelined: 2 },
        Sizing::Proportional { mean_bytes: 30_000, pipelined: 2 },
    ] {
        // The second has much less than it should have, and the third much more.
        let length = |unit: u64, quality: usize| {
            [100_000, 400_000][quality] * [10, 1, 25, 9, 11][unit as usize % 5] / 10 + unit
        };
        let (unknown, paths) = stream(sizing.clone(), 20, None);
        let complete = fetch(unknown, paths, length);
        assert_eq!(complete.len(), 20);
        assert_eq!(complete[0].0, 0, "nothing was measured yet");
        let (known, paths) = stream(sizing, 20, Some([100_000, 400_000]));
        assert_eq!(fetch(known, paths, |_, quality| [100_000, 400_000][quality]).len(), 20);
    }
}

#[test]
fn no_more_is_fetched_than_the_player_holds() {
    let (stream, paths) = stream(Sizing::in_order(), 20, None);
    let complete = fetch(stream, paths, |_, quality| [100_000, 400_000][quality]);
    // It begins with the first segment, and holds three: the last is not there before 17 have begun to play.
    let first = complete[0].1;
    assert!(complete[19].1 >= first + 16 * 2000 - 200, "{complete:?}");
    assert!(complete[3].1 < first + 2000, "{complete:?}");
}

#[test]
fn what_a_closed_path_was_asked_for_others_are_asked_for() {
    let (mut stream, [one, other]) = stream(Sizing::in_order(), 1, Some([100_000, 400_000]));
    let mut asked = Ranges::new();
    let ask = |stream: &mut Stream, path| {
        std::iter::from_fn(|| stream.poll_request(at(0), path))
            .map(|wanted| (wanted.id, wanted.range.first..wanted.range.last.expect("a range") + 1))
            .collect::<Vec<_>>()
    };
    let lost = ask(&mut stream, one);
    assert!(!lost.is_empty());
    stream.handle_closed(at(1), one);
    assert_eq!(stream.handle_bytes(at(1), lost[0].0, 10), None, "its answers are gone with it");
    for step in 0..50 {
        for (id, range) in ask(&mut stream, other) {
            asked.insert(range.clone());
            stream.handle_bytes(at(2 + step), id, range.end - range.start).expect("it was asked for");
        }
    }
    assert!(asked.contains(&(0..100_000)), "{asked:?}");
    assert!(stream.is_complete());
}

#[test]
fn another_length_than_before_is_an_error() {
    let (mut stream, [one, _]) = stream(Sizing::in_order(), 1, None);
    let first = stream.poll_request(at(0), one).expect("a request");
    stream.handle_head(at(1), first.id, Some(90_000)).expect("the first one");
    let error = stream.handle_head(at(1), first.id, Some(90_001)).expect_err("another file");
    assert_eq!(error.to_string(), "a segment of the stream has 90001 bytes now; it had 90000");
}

#[test]
fn without_ranges_one_path_is_asked_at_a_time_and_another_when_that_one_is_lost() {
    let (mut stream, [one, other]) = stream(Sizing::in_order(), 8, None);
    let first = stream.poll_request(at(0), one).expect("a request");
    assert!(stream.poll_request(at(0), other).is_some(), "nothing is known yet");
    stream.handle_head(at(20), first.id, Some(100_000)).expect("the first one");
    assert!(stream.handle_whole(first.id) && stream.is_whole());
    assert_eq!(stream.handle_bytes(at(20), first.id, 100_000).map(|arrived| arrived.range), Some(0..100_000));
    stream.handle_end(at(20), first.id);
    // The answer to the other one is of no use.
    assert_eq!(stream.poll_request(at(21), other), None);
    let second = stream.poll_request(at(21), one).expect("the next unit");
    assert_eq!((second.unit, second.range.first), (UnitNumber(1), 0));
    stream.handle_closed(at(22), one);
    let again = stream.poll_request(at(22), other).expect("the same one, over the other path");
    assert_eq!((again.unit, again.range.first), (UnitNumber(1), 0));
}
