"""The application's own table. Nothing here knows of jobs."""

from flask_sqlalchemy import SQLAlchemy
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


db = SQLAlchemy(model_class=Base)


class Order(db.Model):  # type: ignore[misc, name-defined]  # made at run time, which no type checker follows
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    quantity: Mapped[int]
    receipt: Mapped[str | None]
