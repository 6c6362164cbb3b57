//! The memory of this process itself.

/// Has malloc give free pages back to the kernel: after much of what was asked for in small pieces, by several threads, was
/// joined, or made smaller, it would keep them. musl's has no such call, and gives large blocks back by itself.
pub(crate) fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes no pointer, and locks each arena while it looks at it (glibc malloc/malloc.c, __malloc_trim).
    unsafe {
        libc::malloc_trim(0);
    }
}
