//! What the tests of several modules share.

/// The next number of a sequence that follows from its first state (xorshift64*), which is not 0.
pub(super) fn random(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}
