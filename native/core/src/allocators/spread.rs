//! A sample, spread over all that there is.

/// At most `most` of `all`, evenly spread, each with how many it stands for.
pub(crate) fn spread<'a, T>(all: &[&'a T], most: usize) -> Vec<(&'a T, f64)> {
    let taken = all.iter().copied().step_by(all.len().div_ceil(most.max(1)).max(1)).collect::<Vec<_>>();
    let weight = all.len() as f64 / taken.len().max(1) as f64;
    taken.into_iter().map(|one| (one, weight)).collect()
}
