"""Django under gunicorn: a site with visitors in memory and a cache that grows: gunicorn shop:application"""

from __future__ import annotations

import os
import random

import django
from django.conf import settings
from django.core.cache import cache
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse
from django.template import Context, Engine
from django.urls import path

settings.configure(
    DEBUG=False,
    SECRET_KEY="only for this test",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    INSTALLED_APPS=[f"django.contrib.{name}" for name in ("contenttypes", "auth", "admin", "messages", "sessions")],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    CACHES={
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "OPTIONS": {"MAX_ENTRIES": 100_000}}
    },
)  # fmt: skip
django.setup()
import django.contrib.admin.sites  # noqa: E402
import django.forms  # noqa: E402

PAGE = Engine().from_string("{% for row in rows %}<li>{{ row.name }} {{ row.number|add:1 }}</li>{% endfor %}")
SESSIONS: dict[str, dict[str, object]] = {}
ROWS = int(os.environ.get("ROWS", "20000"))


class Visit:
    """The site's data about a visitor."""

    def __init__(self, number: int) -> None:
        self.name = f"visitor {number}"
        self.number = number
        self.pages = [f"/page/{page}" for page in range(number % 7)]


def fill() -> None:
    """Make visitors, and keep rendered pages."""
    rng = random.Random(1)
    for number in range(ROWS):
        SESSIONS[f"{rng.getrandbits(64):016x}"] = {"visit": Visit(number), "expires": number / 7}
    for number in range(ROWS // 20):
        cache.set(f"page {number}", PAGE.render(Context({"rows": [Visit(number)] * 20})), 100_000)


def show(_request: HttpRequest) -> HttpResponse:
    """Return a page."""
    return HttpResponse(PAGE.render(Context({"rows": [Visit(1), Visit(2)]})))


urlpatterns = [path("", show)]
fill()
application = get_wsgi_application()
