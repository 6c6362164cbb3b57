"""Folders that a group may write to count as their owner's own if the kernel lets no other account write there."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from support.gdb_side import GDB, home, needs_gdb
from support.programs import PATIENCE, has_mount_namespaces, plain_environment
from support.users import installed

pytestmark = pytest.mark.skipif(not has_mount_namespaces(), reason="needs root and mount namespaces for other accounts")
OWNER, OTHER, GROUP, PRIVATE = 54311, 54312, 54313, 54311
PASSWD = f"root:x:0:0::/:/bin/sh\nowner:x:{OWNER}:{PRIVATE}::/:/bin/sh\n"
GROUPS = f"root:x:0:\nowner:x:{PRIVATE}:\nstaff:x:{GROUP}:"
LISTED, LDAP = "passwd: files systemd # all of them\n", "passwd: files [NOTFOUND=continue] ldap\n"


class Accounts(NamedTuple):
    """Simulated accounts of the machine.

    ``gids``: groups that another user has or may get, or None; ``owner`` and ``group`` of a folder.
    """

    passwd: str
    group: str
    switch: str
    gids: list[int]
    owner: int = 0
    of: int = GROUP


def other(gid: int) -> str:
    """Return the line of another account with this group."""
    return f"other:x:{OTHER}:{gid}::/:/bin/sh\n"


CASES = {
    "nobody": Accounts(PASSWD + other(OTHER), GROUPS, LISTED, []),
    "no switch": Accounts(PASSWD, GROUPS, "", []),
    "root": Accounts(PASSWD, GROUPS + "root", LISTED, []),
    "member": Accounts(PASSWD + other(OTHER), GROUPS + "other", LISTED, [GROUP]),
    "member without an account": Accounts(PASSWD, GROUPS + "other", LISTED, [GROUP]),
    "own group": Accounts(PASSWD + other(GROUP), GROUPS, LISTED, [GROUP]),
    "root's group": Accounts(PASSWD + other(0), GROUPS, LISTED, [0], of=0),
    "root's group alone": Accounts(PASSWD, GROUPS, LISTED, [], of=0),
    "no such group": Accounts(PASSWD, GROUPS, LISTED, [77], of=77),
    "not listed": Accounts(PASSWD, GROUPS, LDAP, [GROUP]),
    "not listed, root's group": Accounts(PASSWD, GROUPS, LDAP, [], of=0),
    "private": Accounts(PASSWD, GROUPS, LDAP, [], OWNER, PRIVATE),
    "private with another": Accounts(PASSWD + other(PRIVATE), GROUPS, LISTED, [PRIVATE], OWNER, PRIVATE),
}
MOUNT = 'cd $1 && for file in passwd group nsswitch.conf; do mount --bind $file /etc/$file; done; shift; exec "$@"'
ASK = """
import json, os, sys
from gdbheap import files
from gdbheap.commands.shell.installation import _check_place
from gdbheap.errors import GdbheapError
from gdbheap.files.trust import OWN

def child(uid, gid, groups, act):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            act()
            status = 0
        except (OSError, GdbheapError):
            pass
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0

def check(folder, owner, gids):
    for gid in gids:
        assert child(54312, gid, [], lambda: os.mkdir(folder + "/planted"))
    write, check = (lambda: files.write_text(folder + "/a", "new")), (lambda: _check_place(folder, (OWN,)))
    return [child(owner, owner, [], act) for act in (write, check)]

answers = {}
for name, (passwd, group, switch, gids, owner, of) in json.load(sys.stdin).items():
    for path, text in (("passwd", passwd), ("group", group + "\\n"), ("nsswitch.conf", switch)):
        with open("/etc/" + path, "w") as file:
            file.write(text)
    folder = "./" + name
    os.mkdir(folder)
    os.chown(folder, owner, of)
    os.chmod(folder, 0o2775)
    answers[name] = check(folder, owner, gids)
print(json.dumps(answers))
"""


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that others can reach, with files that are mounted over those of /etc."""
    found = tmp_path_factory.mktemp("accounts")
    for folder in (found, *found.parents[:2]):
        folder.chmod(0o711)
    for name in ("passwd", "group", "nsswitch.conf"):
        (found / name).touch()
    return found


def inside(place: Path, *command: str, **options: object) -> str:
    """Return the output of a command that runs with these files mounted."""
    words = ["unshare", "--mount", "sh", "-ec", MOUNT, "sh", str(place), *command]
    settings = {"env": plain_environment(), **options}
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, **settings)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout + done.stderr)


def test_who_is_in_a_group(place: Path) -> None:
    answers = json.loads(inside(place, sys.executable, "-c", ASK, input=json.dumps(CASES)))
    assert answers == {name: [not accounts.gids] * 2 for name, accounts in CASES.items() if name in answers}
    assert len(answers) == len(CASES)


@needs_gdb
@pytest.mark.in_turn("name", 2)
@pytest.mark.parametrize("name", ["nobody", "root's group", "not listed"])
def test_whose_groups_a_package_may_have(name: str, place: Path) -> None:
    site = place / "site"
    for package in ("gdbheap", "elftools"):
        shutil.copytree(installed(package), site / package)
    accounts, loader = CASES[name], site / "gdbheap" / "loader"
    shutil.chown(loader, accounts.owner, accounts.of)
    loader.chmod(0o2775)
    for file, text in (
        ("passwd", accounts.passwd),
        ("group", accounts.group + "\n"),
        ("nsswitch.conf", accounts.switch),
    ):
        (place / file).write_text(text)
    command = [
        GDB,
        "-nx",
        "-batch",
        "-x",
        str(loader / "gdbheap"),
        "-ex",
        "python print('gdbheap.heap' in sys.modules)",
    ]
    shown = inside(place, *command, env=home(place))
    assert ("write to" in shown) == bool(accounts.gids), shown
