"""The managed block of a page: generated text stands inside, what people write around it survives."""

from __future__ import annotations

from packhost.errors import ConfigInvalid, Place

START = "<!-- packhost:managed:start -->"
END = "<!-- packhost:managed:end -->"


def merge(existing: str | None, generated: str, name: str = "") -> str:
    """The page with `generated` as its managed block; what stands outside of the block is kept.

    A page without a block keeps all it has, below the new block. `name` is the page as errors call it.
    Raises `ConfigInvalid` for markers that are missing, doubled or out of order.
    """
    block = f"{START}\n\n{generated.strip()}\n\n{END}"
    if existing is None or not existing.strip():
        return f"{block}\n"
    starts, ends = existing.count(START), existing.count(END)
    if starts == ends == 0:
        return f"{block}\n\n{existing.lstrip()}"
    before, _, rest = existing.partition(START)
    _, found, after = rest.partition(END)
    if starts != 1 or ends != 1 or not found:
        raise ConfigInvalid(
            "the page's managed block is damaged",
            hint=f"let `{START}` and `{END}` stand once each, in this order, or remove both",
            place=Place(name) if name else None,
        )
    return f"{before}{block}{after}"
