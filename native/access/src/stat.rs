//! Fields of `/proc/PID/stat` and `/proc/PID/status`, and of the same files of a thread (proc_pid_stat(5),
//! proc_pid_status(5)).
#![forbid(unsafe_code)]

/// The number of the field of `stat` with the letter of the state.
pub(crate) const STATE: usize = 3;
/// The number of the field of `stat` with the count of page faults that waited for a disk.
pub(crate) const MAJOR_FAULTS: usize = 12;
/// The number of the field of `stat` with the CPU time in user code.
pub(crate) const USER_TIME: usize = 14;
/// The number of the field of `stat` with the CPU time in the kernel.
pub(crate) const SYSTEM_TIME: usize = 15;
/// The state of a thread that waits in the kernel and does not react to signals.
pub(crate) const UNINTERRUPTIBLE: &str = "D";
/// The state of a thread that waits and that a signal would wake.
pub(crate) const SLEEPING: &str = "S";

/// Return the fields of a `stat` file with these numbers (3 or more), all from one moment; None if a field is missing,
/// for example because the process is gone. The second field, a name in parentheses, may contain anything. While the
/// process is in execve(2), the read blocks.
pub(crate) fn fields<const N: usize>(path: &str, numbers: [usize; N]) -> Option<[String; N]> {
    let stat = std::fs::read_to_string(path).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    let found = numbers.map(|number| rest.split_whitespace().nth(number - STATE).map(str::to_owned));
    found.iter().all(Option::is_some).then(|| found.map(Option::unwrap_or_default))
}

/// Return whether the process with this `status` file ignores a signal, at its own request or by default.
///
/// An ignored signal wakes a thread only while the thread is traced.
pub(crate) fn ignores(status: &str, signal: i32) -> bool {
    let status = std::fs::read_to_string(status).unwrap_or_default();
    let has = |name: &str| {
        let mask = status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or_default();
        u64::from_str_radix(mask, 16).is_ok_and(|mask| mask >> (signal - 1) & 1 == 1)
    };
    let is_by_default = [libc::SIGCHLD, libc::SIGURG, libc::SIGWINCH, libc::SIGCONT].contains(&signal);
    (1..=64).contains(&signal) && (has("SigIgn:") || (is_by_default && !has("SigCgt:")))
}

/// Return the value of the line `name` in a `status` file; None if there is no such line or file. Reading the file
/// never blocks.
pub(crate) fn said(status: &str, name: &str) -> Option<String> {
    let text = std::fs::read(status).ok()?;
    said_in(&text, name).map(|value| String::from_utf8_lossy(value).into_owned())
}

/// Return the value of the line `name` in the text of a `status` file; None if there is no such line.
pub(crate) fn said_in<'a>(text: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut lines = text.split(|byte| *byte == b'\n');
    lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":")).map(<[u8]>::trim_ascii)
}

/// Return the letter of the state in a `status` file; None if the file has no state.
pub(crate) fn state(status: &str) -> Option<char> {
    said(status, "State")?.chars().next()
}

/// Return whether a `status` file says that the process has ended; also true if the file has no state.
pub(crate) fn has_ended(status: &str) -> bool {
    state(status).is_none_or(|state| matches!(state, 'X' | 'x' | 'Z'))
}

/// Return whether a `status` file says that the thread is in uninterruptible sleep.
pub(crate) fn sleeps_uninterruptibly(status: &str) -> bool {
    state(status) == Some('D')
}
