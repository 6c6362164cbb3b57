//! Tests that a program ends when it is asked to, although one of its threads computes for ever.

use gdbheap_access::error::Cancellation;
use gdbheap_access::signals::end_where_deaf;
use gdbheap_access::work::{Progress, Task, Watcher};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SPINS: &str = "GDBHEAP_TEST_SPINS";
const LINE: &str = "a worker of ours never ends\n";
/// The program needs three seconds to end; the machine may be busy.
const LIMIT: Duration = Duration::from_secs(120);

/// A watcher in a program that was asked to end.
struct Told;

impl Watcher for Told {
    fn attend(&self, _progress: Option<Progress>) -> Result<(), Cancellation> {
        Err(Cancellation)
    }

    fn is_told(&self) -> bool {
        true
    }
}

/// Start this test again as the program that computes for ever, and wait for the end of that program.
#[test]
fn a_worker_that_hears_nothing_ends_with_the_program() {
    if std::env::var_os(SPINS).is_some() {
        end_where_deaf(LINE.into(), Vec::new());
        let task = Task { watcher: &Told, total: None, inline: false };
        let _ = task.alone::<()>(|_control| loop {
            std::hint::spin_loop();
        });
        return;
    }
    let mut program = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "a_worker_that_hears_nothing_ends_with_the_program", "--nocapture"])
        .env(SPINS, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("this test once more");
    let begun = Instant::now();
    while program.try_wait().expect("its end").is_none() {
        if begun.elapsed() > LIMIT {
            program.kill().expect("it runs");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let ended = program.wait_with_output().expect("what it said");
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&ended.stderr), LINE);
}
