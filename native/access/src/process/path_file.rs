//! Opens files that a process, a core or another user names.
//!
//! Walking such a path may block without end: on a program that implements a file system (FUSE), on an NFS server that
//! is down, or on the lock of another process's memory map (/proc/PID/map_files). So a separate thread walks, and
//! gdbheap continues without this thread if it blocks (`patient`). A path named by a target is walked one name at a
//! time. The walk never enters an unknown mount, because not even SIGKILL interrupts a request to such a mount.
#![forbid(unsafe_code)]

use crate::patient::at_name;
use crate::process::filesystem;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// The largest number of symbolic links that one walk follows; the kernel has the same limit (MAXSYMLINKS).
const MOST_LINKS: usize = 40;
/// The largest number of steps of one walk. A path has at most 2,048 names, but each `..` starts again at the root.
const MOST_STEPS: usize = 8192;

/// A file that was opened with O_PATH. O_PATH does not open the contents of the file.
pub struct PathFile {
    pub file: File,
    /// The path of the file without symbolic links, if the path was walked.
    pub path: PathBuf,
    pub found: Metadata,
    /// The type of the file system that has the file (statfs(2), f_type).
    pub kind: u32,
}

impl PathFile {
    fn new(file: File, path: PathBuf) -> Result<PathFile> {
        let (found, kind) = (file.metadata()?, filesystem(file.as_raw_fd())?);
        Ok(PathFile { file, path, found, kind })
    }
}

/// Open with O_PATH a file whose path comes from a user who may name any file. `follows`: follow a symbolic link at the
/// end of the path. ETIMEDOUT if the kernel blocks.
pub fn hold(path: &Path, follows: bool) -> Result<PathFile> {
    let (name, flags) = (path.to_owned(), if follows { 0 } else { libc::O_NOFOLLOW });
    at_name(path.into(), move || PathFile::new(held(&name, flags)?, name))
}

/// Open with O_PATH a file that a target names. `path` begins at the folder `root`, and so do absolute symbolic links.
/// `mounts`: ids of mountinfo. Errors: EXDEV if the path leads to a mount that is not in `mounts`; ETIMEDOUT if the
/// kernel blocks; ELOOP if there are too many links. `checks_root`: whether the mount of the root folder must be in
/// `mounts`, too.
pub fn walk(root: &Path, path: &Path, mounts: HashSet<u64>, checks_root: bool) -> Result<PathFile> {
    let (top, name) = (root.to_owned(), path.to_owned());
    at_name([root.as_os_str(), OsStr::new("\0"), path.as_os_str()].into_iter().collect(), move || {
        let root = held(&top, libc::O_DIRECTORY)?;
        if checks_root && !mounts.contains(&mount_of(&root)?) {
            return Err(Error::from_raw_os_error(libc::EXDEV));
        }
        let start = (!checks_root).then(|| mount_of(&root)).transpose()?;
        let mut walk = Walk { here: root.try_clone()?, root, mounts, done: Vec::new() };
        walk.mounts.extend(start);
        walk.go(&name)?;
        let below: PathBuf = walk.done.iter().collect();
        PathFile::new(walk.here, top.join(below))
    })
}

/// Open for reading the file that is held with O_PATH: the same file, even if it was renamed. ETIMEDOUT if the kernel
/// blocks.
pub fn reopen(held: File) -> Result<File> {
    let place = own_path(&held);
    at_name(place.clone().into(), move || {
        let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = File::options().read(true).custom_flags(flags).open(&place)?;
        drop(held);
        Ok(file)
    })
}

struct Walk {
    root: File,
    here: File,
    mounts: HashSet<u64>,
    /// The names from the root folder to `here`.
    done: Vec<OsString>,
}

impl Walk {
    fn go(&mut self, path: &Path) -> Result<()> {
        let too_many = || Error::from_raw_os_error(libc::ELOOP);
        let (mut left, mut links) = (Vec::new(), 0);
        push(&mut left, path);
        for _ in 0..MOST_STEPS {
            let Some(name) = left.pop() else { return Ok(()) };
            if name == ".." {
                self.done.pop();
                left.extend(self.done.drain(..).rev());
                self.here = self.root.try_clone()?;
                continue;
            }
            let place = own_path(&self.here).join(&name);
            let next = held(&place, libc::O_NOFOLLOW)?;
            if !self.mounts.contains(&mount_of(&next)?) {
                return Err(Error::from_raw_os_error(libc::EXDEV));
            }
            if !next.metadata()?.is_symlink() {
                self.here = next;
                self.done.push(name);
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(too_many());
            }
            let target = std::fs::read_link(&place)?;
            if target.is_absolute() {
                self.done.clear();
                self.here = self.root.try_clone()?;
            }
            push(&mut left, &target);
        }
        Err(too_many())
    }
}

/// Push the names of a path, the first one last.
fn push(left: &mut Vec<OsString>, path: &Path) {
    left.extend(path.components().rev().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    }));
}

fn held(path: &Path, flags: i32) -> Result<File> {
    File::options().read(true).custom_flags(libc::O_PATH | flags).open(path)
}

fn own_path(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Return the id of the mount through which a file was reached. The kernel answers from its data about the open
/// descriptor, without the file system of the file, so this cannot block.
fn mount_of(file: &File) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
    let id = text.lines().find_map(|line| line.strip_prefix("mnt_id:")).and_then(|id| id.trim().parse().ok());
    id.ok_or_else(|| Error::from_raw_os_error(libc::EIO))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts() -> HashSet<u64> {
        let text = std::fs::read_to_string("/proc/self/mountinfo").expect("our mounts");
        let others = text.lines().filter(|line| !line.contains(" - proc "));
        others.filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
    }

    #[test]
    fn paths_are_walked_without_their_links() {
        let folder =
            std::env::temp_dir().canonicalize().expect("a folder").join(format!("named-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("a/b")).expect("a folder");
        std::fs::write(folder.join("a/b/file"), "x").expect("a file");
        std::os::unix::fs::symlink("b/../b", folder.join("a/link")).expect("a link");
        std::os::unix::fs::symlink(folder.join("a"), folder.join("whole")).expect("a link");
        std::os::unix::fs::symlink("round", folder.join("round")).expect("a link");
        let walked = |name: &str| walk(Path::new("/"), &folder.join(name), mounts(), false);
        for name in ["a/b/file", "a/link/file", "whole/link/../b/./file"] {
            assert_eq!(walked(name).expect("the file").path, folder.join("a/b/file"));
        }
        assert_eq!(walked("round").err().and_then(|error| error.raw_os_error()), Some(libc::ELOOP));
        assert_eq!(walked("nothing").err().and_then(|error| error.raw_os_error()), Some(libc::ENOENT));
        let inside = walk(&folder, Path::new("/../a/link/file"), mounts(), true).expect("the file");
        assert_eq!(inside.path, folder.join("a/b/file"));
        std::fs::remove_dir_all(&folder).expect("it was there");
    }

    #[test]
    fn files_of_processes_are_not_walked_to() {
        let found = walk(Path::new("/"), Path::new("/proc/self/root/etc"), mounts(), false);
        assert_eq!(found.err().and_then(|error| error.raw_os_error()), Some(libc::EXDEV));
        assert!(hold(Path::new("/proc/self/exe"), true).expect("our program").found.is_file());
        assert!(hold(Path::new("/proc/self/exe"), false).expect("a link").found.is_symlink());
    }
}
