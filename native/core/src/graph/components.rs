//! Find strongly connected components: sets of nodes in which each node reaches every other one.

use super::csr::{split, Edges};
use super::tree::NOBODY;

/// Return the number of the component of each node for which `is_in` is true (`NOBODY` for other nodes), and the number
/// of components. A component can be reached only from components with higher numbers (Tarjan). `counts` returns
/// whether edges of a given strength are followed.
pub(crate) fn components(
    edges: &Edges,
    is_in: impl Fn(u32) -> bool,
    counts: impl Fn(u32) -> bool,
) -> (Vec<u32>, usize) {
    let nodes = edges.nodes();
    let (mut found, mut number) = (vec![NOBODY; nodes], 0);
    // `met`: the time at which the search met each node (1, 2, and so on; 0: not yet). `low`: the earliest such time
    // among the nodes that a node reaches.
    let (mut met, mut low, mut next) = (vec![0u32; nodes], vec![0u32; nodes], 1);
    let (mut open, mut calls): (Vec<u32>, Vec<(u32, usize)>) = (Vec::new(), Vec::new());
    for start in (0..nodes as u32).filter(|node| is_in(*node)) {
        if met[start as usize] == 0 {
            calls.push((start, 0));
        }
        while let Some((node, place)) = calls.last_mut() {
            let (own, at) = (*node as usize, *place);
            *place += 1;
            if met[own] == 0 {
                (met[own], low[own]) = (next, next);
                next += 1;
                open.push(own as u32);
            }
            match edges.of(own as u32).get(at).map(|edge| split(*edge)) {
                Some((target, strength)) if counts(strength) && is_in(target) => match met[target as usize] {
                    0 => calls.push((target, 0)),
                    when if found[target as usize] == NOBODY => low[own] = low[own].min(when),
                    _ => (),
                },
                Some(_) => (),
                None => {
                    calls.pop();
                    if low[own] == met[own] {
                        while let Some(member) = open.pop() {
                            found[member as usize] = number;
                            if member as usize == own {
                                break;
                            }
                        }
                        number += 1;
                    }
                    if let Some((above, _)) = calls.last() {
                        low[*above as usize] = low[*above as usize].min(low[own]);
                    }
                }
            }
        }
    }
    (found, number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_are_numbered_from_the_last_reached_on() {
        // The edges are 0 -> 1 -> 2 -> 1 and 2 -> 3 -> 3. Node 4 is left out.
        let edges = Edges::of_rows([vec![1], vec![2], vec![1, 3], vec![3], vec![0]]);
        assert_eq!(components(&edges, |node| node != 4, |_| true), (vec![2, 1, 1, 0, NOBODY], 3));
    }
}
