//! Helpers for the tests of several modules.

/// Return the next number of a pseudo-random sequence (xorshift64*), which depends only on the initial `state`. The
/// state must not be 0.
pub(super) fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}
