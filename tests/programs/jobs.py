"""Typical work of other libraries: jobs.py NAME SEED SECONDS. Then wait for standard input.

NAME: one of ``JOBS``. The job is repeated for SECONDS, at least once; the results of the last rounds are held.
"""

from __future__ import annotations

import collections
import concurrent.futures
import io
import os
import random
import sys
import threading
import time
import urllib.request
from typing import Any, Callable


def table(rng: random.Random) -> Any:
    """Return a data frame of numbers, words, dates and categories."""
    import numpy
    import pandas

    numbers = numpy.random.default_rng(rng.getrandbits(32))
    rows = rng.randrange(5_000, 40_000)
    words = [f"word {number}" for number in range(rng.randrange(10, 2000))]
    return pandas.DataFrame(
        {
            "number": numbers.normal(size=rows),
            "count": numbers.integers(0, 100, rows),
            "word": numbers.choice(words, rows),
            "kind": pandas.Categorical(numbers.choice(words[:7], rows)),
            "day": pandas.date_range("2001-01-01", periods=rows, freq="h"),
        }
    )


def frames(rng: random.Random) -> list[Any]:
    """Group, join, sort, pivot and write data frames with pandas; decompose matrices with numpy."""
    import numpy
    import pandas

    left, right = table(rng), table(rng)
    joined = left.merge(right, on="kind", how="left", suffixes=("", "2")) if len(left) < 6000 else left
    grouped = left.groupby(["kind", "word"], observed=True).agg({"number": ["mean", "std"], "count": "sum"})
    pivot = left.pivot_table(index="word", columns="kind", values="number", observed=True)
    text = io.StringIO()
    right.head(2000).to_csv(text)
    text.seek(0)
    back = pandas.read_csv(text, index_col=0, parse_dates=["day"])
    matrix = numpy.linalg.svd(left[["number", "count"]].to_numpy()[:200])
    rolled = left.set_index("day")["number"].resample("D").mean().rolling(7).sum()
    return [left, right, joined, grouped, pivot, back, matrix, rolled, left["word"].str.upper()]


def columns(rng: random.Random) -> list[Any]:
    """Move tables between pandas and pyarrow, through parquet files in memory."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.parquet

    first = pyarrow.Table.from_pandas(table(rng))
    file = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(first, file)
    second = pyarrow.parquet.read_table(pyarrow.BufferReader(file.getvalue()))
    nested = pyarrow.array([{"a": [1, 2], "b": str(row)} for row in range(rng.randrange(3000))])
    return [first, second, nested, second.group_by("kind").aggregate([("count", "sum")]), second.to_pandas()]


def application() -> Any:
    """Return a web application with templates, sessions and, if SQLAlchemy is installed, a database."""
    import flask

    app = flask.Flask("application")
    app.secret_key = "of a test"
    pages = collections.deque(maxlen=500)  # type: collections.deque[str]

    @app.route("/page/<int:number>", methods=["GET", "POST"])
    def page(number: int) -> str:
        """Render a page and remember it."""
        flask.session["seen"] = flask.session.get("seen", 0) + 1
        text = flask.render_template_string(
            "{% for row in rows %}<p>{{ row }} of {{ number }}</p>{% endfor %}", rows=range(number % 50), number=number
        )
        pages.append(text)
        return text

    @app.route("/json/<name>")
    def answer(name: str) -> Any:
        """Reply in JSON."""
        return flask.jsonify({"name": name, "headers": dict(flask.request.headers), "pages": len(pages)})

    return app


class Server:
    """A flask application in werkzeug's threads, on loopback. Its clients are threads of this process too."""

    def __init__(self) -> None:
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Quiet(WSGIRequestHandler):
            """A handler that logs nothing."""

            def log(self, *arguments: Any) -> None:
                """Do nothing."""

        self.server = make_server("127.0.0.1", 0, application(), threaded=True, request_handler=Quiet)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.askers = concurrent.futures.ThreadPoolExecutor(8)

    def ask(self, rng: random.Random) -> list[Any]:
        """Return the replies to many requests."""
        names = [f"page/{rng.randrange(1000)}" if rng.random() < 0.7 else f"json/{rng.random()}" for _ in range(200)]
        return list(self.askers.map(self._get, names))

    def _get(self, name: str) -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.server.port}/{name}") as answer:
            return bytes(answer.read())


_servers: list[Server] = []


def web(rng: random.Random) -> list[Any]:
    """Serve requests with flask and werkzeug."""
    if not _servers:
        _servers.append(Server())
    return _servers[0].ask(rng)


def rows(rng: random.Random) -> list[Any]:
    """Map objects to rows of SQLite with SQLAlchemy, and query them."""
    import sqlalchemy
    from sqlalchemy import orm

    class Base(orm.DeclarativeBase):
        """The base class of all tables."""

    class Author(Base):
        """A row."""

        __tablename__ = "author"
        id = orm.mapped_column(sqlalchemy.Integer, primary_key=True)
        name = orm.mapped_column(sqlalchemy.String(50))
        books = orm.relationship("Book", back_populates="author")

    class Book(Base):
        """A row that belongs to another."""

        __tablename__ = "book"
        id = orm.mapped_column(sqlalchemy.Integer, primary_key=True)
        title = orm.mapped_column(sqlalchemy.String(200))
        author_id = orm.mapped_column(sqlalchemy.ForeignKey("author.id"))
        author = orm.relationship("Author", back_populates="books")

    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.pool.StaticPool)
    Base.metadata.create_all(engine)
    session = orm.Session(engine)
    for number in range(rng.randrange(50, 300)):
        session.add(Author(name=f"author {number}", books=[Book(title="t" * rng.randrange(90)) for _ in range(5)]))
    session.commit()
    found = session.scalars(sqlalchemy.select(Book).join(Author).where(Author.id < 40)).all()
    return [engine, session, found]


def documents(rng: random.Random) -> list[Any]:
    """Parse and transform XML with lxml, draw with pillow, sign and encrypt with cryptography."""
    import lxml.etree
    import PIL.Image
    import PIL.ImageDraw
    from cryptography import fernet, x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    tree = lxml.etree.fromstring("<a>" + "<b c='d'>text</b>" * rng.randrange(2000) + "</a>")
    found = tree.xpath("//b[@c]")
    image = PIL.Image.new("RGB", (rng.randrange(50, 600), rng.randrange(50, 600)))
    PIL.ImageDraw.Draw(image).ellipse((5, 5, 40, 40), fill="red")
    file = io.BytesIO()
    image.save(file, "PNG")
    keys = [ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()]
    keys.append(rsa.generate_private_key(65537, 1024))
    written = [
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        for key in keys
    ]
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    request = x509.CertificateSigningRequestBuilder().subject_name(name).sign(keys[0], hashes.SHA256())
    secret = fernet.Fernet(fernet.Fernet.generate_key())
    return [tree, found, image, PIL.Image.open(file), keys, written, request, secret]


def models(rng: random.Random) -> list[Any]:
    """Fit trees and neighbours with scikit-learn, factor sparse matrices with scipy."""
    import numpy
    import scipy.sparse.linalg
    import sklearn.datasets
    import sklearn.ensemble
    import sklearn.neighbors

    points, labels = sklearn.datasets.make_classification(rng.randrange(200, 2000), random_state=rng.getrandbits(32))
    forest = sklearn.ensemble.RandomForestClassifier(rng.randrange(5, 60)).fit(points, labels)
    neighbours = sklearn.neighbors.KNeighborsClassifier(algorithm="ball_tree").fit(points, labels)
    size = rng.randrange(100, 800)
    matrix = scipy.sparse.random(size, size, 0.02, format="csc") + scipy.sparse.eye(size, format="csc")
    return [points, forest, neighbours, matrix, scipy.sparse.linalg.splu(matrix), numpy.fft.fft2(points)]


_events: collections.deque[Any] = collections.deque()


def greenlets(rng: random.Random) -> list[Any]:
    """Leave greenlets waiting with gevent; end those of earlier rounds."""
    import gevent
    import gevent.event

    event = gevent.event.Event()
    _events.append(event)
    if len(_events) > 10:
        _events.popleft().set()

    def wait(number: int) -> list[int]:
        kept = [number] * 50
        event.wait()
        return kept

    found = [gevent.spawn(wait, number) for number in range(rng.randrange(50, 500))]
    gevent.sleep(0.01)
    return [event, found]


urlpatterns: list[Any] = []


def site(rng: random.Random) -> list[Any]:
    """Ask django's administration site for pages, as its test client does."""
    import django.conf

    if not django.conf.settings.configured:
        set_up_site()
    from django.contrib.auth.models import User
    from django.test import Client

    name = f"user{rng.getrandbits(40)}"
    User.objects.create_superuser(name, "", "word")
    client = Client()
    client.force_login(User.objects.get(username=name))
    pages = ("/admin/", "/admin/auth/user/", "/admin/auth/group/add/")
    return [client, [client.get(rng.choice(pages)) for _ in range(20)]]


def set_up_site() -> None:
    """Make the site, with a database in memory."""
    import django.conf

    parts = ["contenttypes", "auth", "admin", "sessions", "messages"]
    layers = ["sessions.middleware.Session", "auth.middleware.Authentication", "messages.middleware.Message"]
    django.conf.settings.configure(
        INSTALLED_APPS=[f"django.contrib.{part}" for part in parts],
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        MIDDLEWARE=[f"django.contrib.{layer}Middleware" for layer in layers],
        ROOT_URLCONF=__name__,
        SECRET_KEY="of a test",
        ALLOWED_HOSTS=["*"],
        STATIC_URL="/static/",
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
    )
    django.setup()
    import django.contrib.admin
    import django.core.management
    import django.urls

    urlpatterns.append(django.urls.path("admin/", django.contrib.admin.site.urls))
    django.core.management.call_command("migrate", verbosity=0)


JOBS: dict[str, Callable[[random.Random], list[Any]]] = {
    "frames": frames,
    "columns": columns,
    "web": web,
    "rows": rows,
    "documents": documents,
    "models": models,
    "greenlets": greenlets,
    "site": site,
}


def busy(jobs: list[str], seed: int, end: float, held: collections.deque[Any]) -> None:
    """Do rounds of the jobs until the end time."""
    rng = random.Random(seed)
    while True:
        held.append([JOBS[name](rng) for name in jobs])
        if time.monotonic() >= end:
            return


def main() -> None:
    """Do one job in this thread, or several in as many threads (names with a comma between them)."""
    names, seed, seconds = sys.argv[1].split(","), int(sys.argv[2]), float(sys.argv[3])
    held: collections.deque[Any] = collections.deque(maxlen=10)
    end = time.monotonic() + seconds
    threads = [
        threading.Thread(target=busy, args=([name], seed + place, end, held)) for place, name in enumerate(names[1:])
    ]
    for thread in threads:
        thread.start()
    busy(names[:1], seed, end, held)
    for thread in threads:
        thread.join()
    os.read(0, 1)


if __name__ == "__main__":
    main()
