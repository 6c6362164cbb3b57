use super::*;

fn counted(events: &[Event]) -> Stats {
    let room = Room::new(u64::MAX);
    let mut counter = Counter::new(&room);
    events.iter().for_each(|event| counter.add(*event));
    counter.finish(true)
}

const A: u64 = 0x1_0000;
const B: u64 = 0x2_0000;

#[test]
fn realloc_continues_a_life_and_adds_what_is_new() {
    let found = counted(&[
        Event::Malloc { size: 100, result: A },
        Event::Realloc { size: 300, old: A, result: B },
        Event::Realloc { size: 50, old: B, result: B },
        Event::Free { address: B },
    ]);
    assert_eq!((found.upper, found.lower), (450, 300));
    assert_eq!((found.blocks, found.released, found.temporary), (1, 1, 0));
    assert_eq!(found.resized, ResizeCounts { grown: 1, shrunk: 1, moved: 1, copied: 100 });
    assert_eq!((found.lives_in_calls.median, found.lives_in_calls.zero), (Some(2), 0));
    assert_eq!((found.peak.call, found.peak.in_use.bytes, found.peak.in_use.usable), (2, 300, 312));
    assert_eq!(found.live, InUse::default());
}

/// Check that a block is temporary only if the next call of the thread that allocated it releases it. Calls of other
/// threads in between make no difference.
#[test]
fn temporary_is_what_the_thread_s_next_call_releases() {
    let malloc = |result| Event::Malloc { size: 8, result };
    let found = counted(&[
        Event::Thread { thread: 1, tid: 1 },
        malloc(A),
        Event::Thread { thread: 2, tid: 2 },
        malloc(B),
        Event::Switch { thread: 1 },
        Event::Free { address: A },
        Event::Switch { thread: 2 },
        Event::Free { address: 0 },
        Event::Free { address: B },
    ]);
    assert_eq!((found.threads, found.temporary, found.temporary_bytes, found.nothing), (2, 1, 8, 1));
    assert_eq!(found.lives_in_calls.zero, 0);
    let handed_on = [malloc(A), Event::Switch { thread: 2 }, Event::Free { address: A }];
    let found = counted(&handed_on);
    assert_eq!((found.temporary, found.lives_in_calls.zero), (0, 1));
}

#[test]
fn what_is_missing_is_counted() {
    let found = counted(&[
        Event::Free { address: A },
        Event::Realloc { size: 8, old: A, result: B },
        Event::Calloc { size: 16, result: B },
        Event::Usable { size: 4072 },
        Event::Malloc { size: 1 << 60, result: 0 },
        Event::Realloc { size: 1 << 60, old: B, result: 0 },
        Event::Realloc { size: 0, old: B, result: 0 },
    ]);
    assert_eq!((found.unknown, found.unseen, found.failed), (2, 1, 2));
    assert_eq!((found.blocks, found.released, found.live.blocks), (2, 1, 0));
    assert_eq!((found.upper, found.lower, found.usable), (24, 24, 24 + 4072));
    assert_eq!(found.lives_in_calls.longest, Some(2));
}

/// Check that a usable size that the log states corrects the sums. It must also correct the figures of the peaks, if
/// the peak is at the call that allocated the block.
#[test]
fn a_stated_usable_size_corrects_both_moments() {
    let usable = |size| Event::Usable { size };
    let found = counted(&[Event::Malloc { size: 100, result: A }, usable(1000), Event::Malloc { size: 8, result: B }]);
    assert_eq!((found.usable, found.live.usable), (1024, 1024));
    assert_eq!((found.peak.in_use.usable, found.most.in_use.usable), (1024, 1024));
    // The most bytes and the most blocks are in use at different moments.
    let found = counted(&[
        Event::Malloc { size: 5000, result: A },
        usable(6000),
        Event::Free { address: A },
        Event::Malloc { size: 8, result: A },
        Event::Malloc { size: 8, result: B },
        usable(40),
    ]);
    assert_eq!((found.peak.call, found.peak.in_use.usable), (1, 6000));
    assert_eq!((found.most.call, found.most.in_use.usable), (4, 24 + 40));
}

/// Check that a curve has a bounded number of points, however many calls there are. Check that its last point is at the
/// end, and that it includes the peak.
#[test]
fn curves_are_bounded_and_keep_the_peak() {
    let mut events = vec![Event::Time { nanoseconds: 5000 }];
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut time = 5000;
    for number in 0..100_000u64 {
        let address = (1 + next() % 500) * 16;
        events.push(match next() % 2 {
            0 => Event::Free { address },
            _ => Event::Realloc { size: next() % 10_000, old: address, result: address },
        });
        if number % 100 == 0 {
            time += next() % 1_000_000;
            events.push(Event::Time { nanoseconds: time });
        }
    }
    let found = counted(&events);
    for points in [&found.by_call, &found.by_time] {
        assert!((950..=2048).contains(&points.len()), "{}", points.len());
        assert_eq!(points.iter().map(|point| point.most_bytes).max(), Some(found.peak.in_use.bytes));
        assert!(points.windows(2).all(|two| two[0].calls < two[1].calls && two[0].nanoseconds <= two[1].nanoseconds));
        assert!(points.iter().all(|point| point.most_bytes >= point.bytes));
        let last = points.last().unwrap();
        assert_eq!((last.calls, last.bytes, last.blocks), (found.calls, found.live.bytes, found.live.blocks));
        let peak = points.iter().find(|point| point.calls >= found.peak.call).unwrap();
        assert_eq!(peak.most_bytes, found.peak.in_use.bytes);
    }
    assert_eq!(found.nanoseconds, time - 5000);
}
