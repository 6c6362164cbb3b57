"""Each thread has a SQLite connection with a page cache of up to 64 MB (syncthing/syncthing#10362)."""

import sqlite3
import sys
import threading

path = "files.db"
db = sqlite3.connect(path)
db.execute("create table files(id integer primary key, name text, data blob)")
db.executemany("insert into files values(?, ?, ?)", ((n, f"file-{n}", bytes([n % 251]) * 900) for n in range(18_000)))
db.commit()
local = []


def reader():
    c = sqlite3.connect(path, check_same_thread=False)
    c.execute("pragma cache_size = -64000")
    c.execute("select sum(length(data)) from files where name like '%7%'").fetchall()
    local.append(c)


threads = [threading.Thread(target=reader) for _ in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
print("READY", flush=True)
sys.stdin.readline()
