"""A cached method of a per-request object: the cache keeps each object (PyCQA/flake8#1573)."""

import functools
import os

from flask import Flask, request

app = Flask(__name__)


class OrderView:
    def __init__(self, number, payload):
        self.number = number
        self.payload = payload
        self.lines = [{"sku": f"sku-{n}", "count": n % 7} for n in range(20)]

    @functools.lru_cache(maxsize=None)
    def total(self, currency):
        return sum(line["count"] for line in self.lines) * len(currency)


@app.get("/order/<int:number>")
def order(number):
    view = OrderView(number, os.urandom(8192))
    return {"total": view.total(request.args.get("currency", "EUR"))}
