"""Waiters on topics, in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self


class Watches:
    """Who waits for what; used from the event loop's thread alone.

    `entered` is called whenever somebody begins to wait.
    """

    __slots__ = ("_by_topic", "_entered")

    def __init__(self, entered: Callable[[], None] | None = None) -> None:
        self._by_topic: dict[str, set[TopicWatch]] = {}
        self._entered = entered

    def watch(self, topic: str) -> TopicWatch:
        """A waiter on one topic."""
        return TopicWatch(topic, self)

    def wake(self, topics: Iterable[str]) -> None:
        """Wake who waits for one of these topics."""
        for topic in self._by_topic.keys() & topics:
            for watch in self._by_topic[topic]:
                watch.wake()

    def wake_all(self) -> None:
        """Wake everybody, since what was touched is not known."""
        self.wake(tuple(self._by_topic))

    def add(self, topic: str, watch: TopicWatch) -> None:
        """Let the watch be woken from now on."""
        self._by_topic.setdefault(topic, set()).add(watch)
        if self._entered is not None:
            self._entered()

    def remove(self, topic: str, watch: TopicWatch) -> None:
        """Let it be woken no more."""
        others = self._by_topic.get(topic, set())
        others.discard(watch)
        if not others:
            self._by_topic.pop(topic, None)


class TopicWatch:
    """A waiter on one topic; see `packhost.store.base.Watch`."""

    __slots__ = ("_event", "_topic", "_watches")

    def __init__(self, topic: str, watches: Watches) -> None:
        self._topic = topic
        self._watches = watches
        self._event = asyncio.Event()

    async def changed(self) -> None:
        """Return once a commit touched the topic."""
        await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """Let `changed` return."""
        self._event.set()

    def __enter__(self) -> Self:
        self._watches.add(self._topic, self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watches.remove(self._topic, self)
