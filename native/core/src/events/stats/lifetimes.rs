//! A histogram of block lifetimes, in calls or in nanoseconds. Lifetimes below 256 are exact. For longer lifetimes, the
//! width of a bucket is at most 1/128 of the lifetime.

const EXACT_BITS: u32 = 8;
const EXACT: usize = 1 << EXACT_BITS;
/// The number of buckets between two powers of two.
const STEPS: usize = EXACT / 2;
const BUCKETS: usize = EXACT + (u64::BITS - EXACT_BITS) as usize * STEPS;

/// The number of blocks that lived at least `start` and less than `end` (in calls or nanoseconds). `end` is a power of
/// two, or u64::MAX in the last possible span. The first span is [0, 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub start: u64,
    pub end: u64,
    pub blocks: u64,
}

/// A summary of lifetimes. `zero`: the number of blocks with the lifetime 0. Half of the blocks lived no longer than
/// `median`, nine tenths no longer than `most_of`. Each of these two is too high by less than 1/128. `longest` is
/// exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    pub zero: u64,
    pub median: Option<u64>,
    pub most_of: Option<u64>,
    pub longest: Option<u64>,
    pub spans: Vec<Span>,
}

pub(super) struct Histogram {
    counts: Vec<u64>,
    longest: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: vec![0; BUCKETS], longest: 0 }
    }
}

fn bucket_of(value: u64) -> usize {
    if value < EXACT as u64 {
        return value as usize;
    }
    let power = value.ilog2();
    let step = (value >> (power - (EXACT_BITS - 1))) as usize - STEPS;
    EXACT + (power - EXACT_BITS) as usize * STEPS + step
}

/// Return the largest value in a bucket.
fn last_of(bucket: usize) -> u64 {
    if bucket < EXACT {
        return bucket as u64;
    }
    let (power, step) = ((bucket - EXACT) / STEPS, (bucket - EXACT) % STEPS);
    let shift = power as u32 + 1;
    (((step + STEPS) as u64) << shift) | ((1 << shift) - 1)
}

impl Histogram {
    #[inline(always)]
    pub(super) fn add(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
        self.longest = self.longest.max(value);
    }

    pub(super) fn lives(&self) -> Lives {
        let all: u64 = self.counts.iter().sum();
        if all == 0 {
            return Lives::default();
        }
        Lives {
            zero: self.counts[0],
            median: Some(self.reached(all.div_ceil(2))),
            most_of: Some(self.reached((u128::from(all) * 9).div_ceil(10) as u64)),
            longest: Some(self.longest),
            spans: self.spans(),
        }
    }

    /// Return the lifetime that `wanted` of the blocks did not exceed, rounded up to the end of its bucket.
    fn reached(&self, wanted: u64) -> u64 {
        let mut sum = 0;
        let bucket = self.counts.iter().position(|count| {
            sum += count;
            sum >= wanted
        });
        last_of(bucket.unwrap_or(BUCKETS - 1)).min(self.longest)
    }

    fn spans(&self) -> Vec<Span> {
        let mut spans: Vec<Span> = Vec::new();
        for (bucket, blocks) in self.counts.iter().enumerate().filter(|(_bucket, count)| **count > 0) {
            let bits = u64::BITS - last_of(bucket).leading_zeros();
            let end = 1u64.checked_shl(bits).unwrap_or(u64::MAX);
            match spans.last_mut() {
                Some(last) if last.end == end => last.blocks += blocks,
                _ => spans.push(Span { start: if bits == 0 { 0 } else { 1 << (bits - 1) }, end, blocks: *blocks }),
            }
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_is_near() {
        let mut value = 1u64;
        for number in 0..20_000u64 {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number) >> (number % 60);
            for value in [value, u64::MAX - number, number] {
                let last = last_of(bucket_of(value));
                assert!(last >= value && bucket_of(last) == bucket_of(value), "{value}");
                assert!(last == u64::MAX || bucket_of(last + 1) == bucket_of(value) + 1, "{value}");
                assert!(u128::from(last - value) * 128 < u128::from(value).max(1), "{value} {last}");
            }
        }
    }

    #[test]
    fn spans_are_between_powers_of_two() {
        let mut histogram = Histogram::default();
        [0, 0, 1, 2, 3, 1000, 1023, 1024, u64::MAX].into_iter().for_each(|value| histogram.add(value));
        let lives = histogram.lives();
        let spans: Vec<_> = lives.spans.iter().map(|span| (span.start, span.end, span.blocks)).collect();
        let last = (1 << 63, u64::MAX, 1);
        assert_eq!(spans, [(0, 1, 2), (1, 2, 1), (2, 4, 2), (512, 1024, 2), (1024, 2048, 1), last]);
        assert_eq!((lives.zero, lives.median, lives.longest), (2, Some(3), Some(u64::MAX)));
        assert_eq!(Histogram::default().lives(), Lives::default());
    }
}
