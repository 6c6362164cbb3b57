//! A curve with a bounded number of points. As more points are added, each point covers more calls, and keeps the
//! highest value of these calls.

/// The largest number of points of a curve.
const MOST: usize = 2048;

/// The blocks in use after `calls` calls, at the time `nanoseconds`. `most_bytes`: the largest number of bytes in use
/// since the previous point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    pub calls: u64,
    pub nanoseconds: u64,
    pub blocks: u64,
    pub bytes: u64,
    pub most_bytes: u64,
}

pub(super) struct Curve {
    width: u64,
    /// The points of the curve, each with the number of its bucket.
    points: Vec<(u64, Point)>,
}

impl Curve {
    /// Make a curve; `width` is the initial width of a bucket.
    pub(super) fn new(width: u64) -> Curve {
        Curve { width, points: Vec::with_capacity(MOST + 1) }
    }

    pub(super) fn width(&self) -> u64 {
        self.width
    }

    /// Add a point. `key` is the value from which the point's bucket is computed; it never decreases from one call to
    /// the next.
    pub(super) fn add(&mut self, key: u64, point: Point) {
        push(&mut self.points, key / self.width, point);
        while self.points.len() > MOST {
            self.width = self.width.saturating_mul(2);
            let mut fewer = Vec::with_capacity(MOST + 1);
            self.points.drain(..).for_each(|(bucket, point)| push(&mut fewer, bucket / 2, point));
            self.points = fewer;
        }
    }

    pub(super) fn points(self) -> Vec<Point> {
        self.points.into_iter().map(|(_bucket, point)| point).collect()
    }
}

fn push(points: &mut Vec<(u64, Point)>, bucket: u64, point: Point) {
    match points.last_mut() {
        Some((same, last)) if *same == bucket => {
            *last = Point { most_bytes: last.most_bytes.max(point.most_bytes), ..point };
        }
        _ => points.push((bucket, point)),
    }
}
