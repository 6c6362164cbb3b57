//! Processes that have the memory of another one without being threads of it (clone(2) with CLONE_VM).

use std::fs::read_dir;

const KCMP_VM: libc::c_int = 1;

/// Whether there is one: it runs on while all threads of the process `pid` are stopped. False where kcmp(2) is refused or
/// not there.
pub fn has_sharer(pid: i32) -> bool {
    let names = read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut others = names.filter_map(|name| name.to_str()?.parse().ok()).filter(|other: &i32| *other != pid);
    // SAFETY: numbers only.
    others.any(|other| unsafe { libc::syscall(libc::SYS_kcmp, pid, other, KCMP_VM, 0, 0) } == 0)
}
