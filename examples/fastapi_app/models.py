"""The application's own table, on a Base of its own. Nothing here knows of jobs."""

from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str]
    quantity: Mapped[int]
    receipt: Mapped[str | None]
