//! Fields of `/proc/PID/stat` and of a thread's (proc_pid_stat(5)).

/// The state's letter, and the parent's process id.
pub(crate) const STATE: usize = 3;
pub(crate) const PARENT: usize = 4;

/// The field with that number, from 3 on; None if there is no such field, as when the process is gone. The second field, a
/// name in parentheses, may hold anything.
pub(crate) fn field(path: &str, number: usize) -> Option<String> {
    let stat = std::fs::read_to_string(path).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split_whitespace().nth(number - STATE).map(str::to_owned)
}

/// Whether the process of a `status` file ignores a signal, by choice or by default: such a one wakes a thread only while it is traced.
pub(crate) fn ignores(status: &str, signal: i32) -> bool {
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let has = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default();
        u64::from_str_radix(mask, 16).is_ok_and(|mask| mask >> (signal - 1) & 1 == 1)
    };
    let is_by_default = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT].contains(&signal);
    (1..=64).contains(&signal) && (has("SigIgn:") || (is_by_default && !has("SigCgt:")))
}

/// Whether the state in a `stat` file is that of a process that has ended; also true if there is no state.
pub(crate) fn has_ended(path: &str) -> bool {
    field(path, STATE).is_none_or(|state| matches!(&*state, "X" | "x" | "Z"))
}
