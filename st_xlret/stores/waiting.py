"""Waiting for an answer, but not for ever."""

from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple


class _Answer(NamedTuple):
    value: object = None
    error: BaseException | None = None


def answer_within(seconds: float, ask: Callable[[], Any]) -> Any:
    """What `ask` gives or raises; a `TimeoutError` if that takes longer.

    It runs in a thread that keeps nobody from ending the program.
    """
    answers: SimpleQueue[_Answer] = SimpleQueue()

    def run() -> None:
        try:
            answers.put(_Answer(ask()))
        except BaseException as error:
            answers.put(_Answer(error=error))

    Thread(target=run, daemon=True).start()
    try:
        answer = answers.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"the server has not answered for {seconds:g} s") from None
    if answer.error is not None:
        raise answer.error
    return answer.value
