"""SQLAlchemy with SQLite in memory: a session that keeps what it loaded: orders.py COUNT READY"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import sqlalchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship


class Base(DeclarativeBase):
    """The base class of all tables."""


class Customer(Base):
    """A customer with orders."""

    __tablename__ = "customer"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    orders: Mapped[list[Order]] = relationship(back_populates="customer")


class Order(Base):
    """An order."""

    __tablename__ = "order"
    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str]
    customer_id: Mapped[int] = mapped_column(sqlalchemy.ForeignKey("customer.id"))
    customer: Mapped[Customer] = relationship(back_populates="orders")


engine = sqlalchemy.create_engine("sqlite://")
Base.metadata.create_all(engine)
session = Session(engine)
for number in range(int(sys.argv[1])):
    orders = [Order(text=f"{number} pieces of part {part}") for part in range(3)]
    session.add(Customer(name=f"customer {number}", orders=orders))
session.commit()
loaded = session.scalars(sqlalchemy.select(Customer)).all()
texts = [order.text for customer in loaded for order in customer.orders]
Path(sys.argv[2]).touch()
signal.pause()
